// Package ignition turns the Ignition config of a rendered MachineConfig into
// what an OS image can hold: Parse and Merge read configs of any stable spec,
// Refused names what no image can hold, NewLayer makes the image layer.
//
// The layer of a config is a pure function of the config, the kernel arguments
// and what is known of the base image: the same input gives the same bytes.
package ignition
