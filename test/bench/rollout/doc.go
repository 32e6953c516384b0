// Command rollout measures, on the local cluster, how long a node is out of
// service for an update, from cordon to uncordon: with the image downloaded
// beforehand, as imagemode does it, and with the download after the drain, as
// was usual; each with a change of some size and with a small one, over a line
// of a given speed. Run it with "make bench-rollout".
package main
