package leftover

import "testing"

func TestRootIsOurs(t *testing.T) {
	for sentence, test := range map[string]struct {
		mountinfo string
		want      bool
	}{
		"a process of the host": {
			mountinfo: "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n" +
				"90 22 0:60 / /var/lib/imagemode-cluster/x rw - tmpfs tmpfs rw\n",
		},
		"a machine's process: its root is a directory of the cluster": {
			mountinfo: "300 200 254:0 /var/lib/imagemode-cluster/machines/worker-1/root / rw,relatime - ext4 /dev/vda rw\n",
			want:      true,
		},
		"a container's process: its root is an overlay of the cluster's layers": {
			mountinfo: "300 200 0:99 / / rw - overlay overlay rw,lowerdir=/var/lib/imagemode-cluster/host/containerd/a/fs,upperdir=/x\n",
			want:      true,
		},
		"another engine's container": {
			mountinfo: "300 200 0:99 / / rw - overlay overlay rw,lowerdir=/var/lib/docker/a/fs,upperdir=/x\n",
		},
		"a directory whose name only begins the same": {
			mountinfo: "300 200 254:0 /var/lib/imagemode-cluster-2/root / rw,relatime - ext4 /dev/vda rw\n",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := rootIsOurs(test.mountinfo); got != test.want {
				t.Errorf("rootIsOurs: %v", got)
			}
		})
	}
}
