package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/opencontainers/go-digest"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/test/e2e/local"
)

// script builds and pushes as buildah's users do.
const script = `set -e
export HOME=/var/lib/containers BUILDAH_ISOLATION=chroot
common="--root /var/lib/containers/storage --runroot /var/lib/containers/run --storage-driver overlay"
mkdir -p /var/lib/containers/context
cp -L /context/* /var/lib/containers/context/
cd /var/lib/containers/context
buildah $common bud --signature-policy /etc/containers/policy.json --authfile /auth/.dockerconfigjson --cert-dir /trust --network host -t localhost/os -f Containerfile .
buildah $common push --signature-policy /etc/containers/policy.json --authfile /auth/.dockerconfigjson --cert-dir /trust localhost/os "docker://$TARGET"
`

// makeProgram makes the image of buildah's pod: the OS image, for its shell, with
// the program on top.
func (b *bench) makeProgram(ctx context.Context) error {
	program, err := os.ReadFile(b.buildah)
	if err != nil {
		return err
	}
	layer, err := pack(map[string][]byte{
		"usr/bin/buildah":             program,
		"usr/libexec/podman/netavark": []byte("#!/bin/sh\n"), // looked for, and not called with the host's network
		"etc/containers/policy.json":  []byte(`{"default":[{"type":"insecureAcceptAnything"}]}`),
	})
	if err != nil {
		return err
	}
	base, err := b.told.BaseImage()
	if err != nil {
		return err
	}
	access := registry.Access{AuthFile: local.AuthFile("push"), TrustBundle: local.CAFile}
	made, _, err := registry.Derive(ctx, registry.Source{Access: access, Image: base},
		registry.Target{Access: access, Repository: local.Registry + "/os/bench-buildah", Tags: []string{"latest"}},
		registry.Change{Layers: []registry.NewLayer{layer}})
	if err != nil {
		return fmt.Errorf("the image of buildah's pod: %w", err)
	}
	b.program = made.Reference()
	return nil
}

func pack(contents map[string][]byte) (registry.NewLayer, error) {
	var packed bytes.Buffer
	packer := gzip.NewWriter(&packed)
	plain := sha256.New()
	archive := tar.NewWriter(io.MultiWriter(packer, plain))
	for name, content := range contents {
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
			return registry.NewLayer{}, err
		}
		if _, err := archive.Write(content); err != nil {
			return registry.NewLayer{}, err
		}
	}
	if err := archive.Close(); err != nil {
		return registry.NewLayer{}, err
	}
	if err := packer.Close(); err != nil {
		return registry.NewLayer{}, err
	}
	return registry.NewLayer{
		Data: packed.Bytes(), Digest: digest.FromBytes(packed.Bytes()),
		DiffID: digest.NewDigest(digest.SHA256, plain), CreatedBy: "buildah",
	}, nil
}

// buildahPod builds the same files in a pod and waits for its end.
func (b *bench) buildahPod(ctx context.Context, number int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	name := fmt.Sprintf("bench-buildah-%d", number)
	metadata := metav1.ObjectMeta{Namespace: machineconfiguration.Namespace, Name: name}
	inputs := &corev1.ConfigMap{ObjectMeta: metadata, Data: map[string]string{
		"Containerfile": "FROM " + b.base + "\nCOPY file-* /etc/bench/\n",
	}}
	for i := range files {
		inputs.Data[fmt.Sprintf("file-%d", i)] = content(number, i)
	}
	pod := b.pod(metadata)
	for _, object := range []client.Object{inputs, pod} {
		_ = b.told.Cluster.Client.Delete(ctx, object) // of an earlier run
	}
	if err := b.told.Cluster.Client.Create(ctx, inputs); err != nil {
		return 0, err
	}
	stream, err := b.told.Cluster.Client.Watch(ctx, &corev1.PodList{}, client.InNamespace(metadata.Namespace), client.MatchingFields{"metadata.name": name})
	if err != nil {
		return 0, err
	}
	defer stream.Stop()
	begun := time.Now()
	if err := b.told.Cluster.Client.Create(ctx, pod); err != nil {
		return 0, err
	}
	defer b.remove(pod, inputs)
	for event := range stream.ResultChan() {
		seen, isPod := event.Object.(*corev1.Pod)
		switch {
		case !isPod || seen.UID != pod.UID:
		case hasEndedWell(seen):
			return time.Since(begun), nil
		case seen.Status.Phase == corev1.PodFailed:
			said, err := b.told.Cluster.Kubectl(ctx, "logs", "--tail=20", "-n", metadata.Namespace, name)
			return 0, errors.Join(fmt.Errorf("buildah's pod failed: %s", said), err)
		}
	}
	return 0, context.Cause(ctx)
}

// hasEndedWell is what a build of ours ends with, too: the container has, the pod
// may take another second.
func hasEndedWell(pod *corev1.Pod) bool {
	for _, status := range pod.Status.ContainerStatuses {
		if ended := status.State.Terminated; ended != nil && ended.ExitCode == 0 {
			return true
		}
	}
	return false
}

func (b *bench) remove(objects ...client.Object) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, object := range objects {
		if err := b.told.Cluster.Client.Delete(ctx, object, client.GracePeriodSeconds(0)); err != nil {
			b.told.Log.Line("clearing up: %v", err)
		}
	}
}

// pod is like a builder's: a user namespace of its own, the same capabilities,
// requests and place, storage on a disk.
func (b *bench) pod(metadata metav1.ObjectMeta) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metadata, Spec: corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		HostUsers:                     ptr.To(false),
		AutomountServiceAccountToken:  ptr.To(false),
		EnableServiceLinks:            ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To(int64(1)),
		NodeSelector:                  map[string]string{"node-role.kubernetes.io/control-plane": ""},
		Tolerations:                   []corev1.Toleration{{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists}},
		ImagePullSecrets:              []corev1.LocalObjectReference{{Name: "push"}},
		Containers: []corev1.Container{{
			Name:    "buildah",
			Image:   b.program,
			Command: []string{"/bin/sh", "-c", script},
			Env: []corev1.EnvVar{
				{Name: "TARGET", Value: local.Registry + "/os/" + metadata.Name + ":latest"},
				// An overlay does not work on a container's own overlay.
				{Name: "TMPDIR", Value: "/var/lib/containers"},
			},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("512Mi"),
			}},
			SecurityContext: &corev1.SecurityContext{
				RunAsUser:      ptr.To(int64(0)),
				Capabilities:   &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN", "SETFCAP", "MKNOD", "SYS_CHROOT"}},
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "context", MountPath: "/context"}, {Name: "auth", MountPath: "/auth"},
				{Name: "trust", MountPath: "/trust"}, {Name: "storage", MountPath: "/var/lib/containers"},
			},
		}},
		Volumes: []corev1.Volume{
			{Name: "context", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: metadata.Name}}}},
			{Name: "auth", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "push"}}},
			{Name: "trust", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: machineconfiguration.ConfigMapTrustBundle}}}},
			{Name: "storage", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
	}}
}
