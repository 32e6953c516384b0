package controller

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// nodePullSecret carries the pull secrets of all rollouts to the agents, one
// key per rollout: agents have no right to read Secrets, it is mounted.
const nodePullSecret = "imagemode-node-pull"

// syncPullSecret copies the rollout's pull secret to where the agents see it
// and returns the hash of its content. A problem is for the user to mend; what
// the agents have is left to them meanwhile.
func (r *Reconciler) syncPullSecret(ctx context.Context, rollout *v1alpha1.ImageRollout) (hash, problem string, err error) {
	reference := rollout.Spec.PullSecretRef
	if reference == nil {
		return "", "", r.setPullSecret(ctx, rollout.Name, nil)
	}
	source := &corev1.Secret{}
	err = r.Live.Get(ctx, types.NamespacedName{Namespace: reference.Namespace, Name: reference.Name}, source)
	name := fmt.Sprintf("Secret %s/%s (spec.pullSecretRef)", reference.Namespace, reference.Name)
	switch {
	case apierrors.IsNotFound(err):
		return "", name + " does not exist", nil
	case apierrors.IsForbidden(err):
		return "", name + " may not be read: pull secrets belong into namespace " + r.Options.Namespace, nil
	case err != nil:
		return "", "", err
	}
	content := source.Data[corev1.DockerConfigJsonKey]
	if len(content) == 0 || !json.Valid(content) {
		return "", name + " has no JSON under " + corev1.DockerConfigJsonKey, nil
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), "", r.setPullSecret(ctx, rollout.Name, content)
}

// setPullSecret sets the rollout's key, or removes it; the Secret goes with its
// last key.
func (r *Reconciler) setPullSecret(ctx context.Context, rollout string, content []byte) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: nodePullSecret, Namespace: r.Options.Namespace}}
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	switch {
	case apierrors.IsNotFound(err) && content == nil:
		return nil
	case apierrors.IsNotFound(err):
		secret.Data = map[string][]byte{rollout: content}
		return r.Client.Create(ctx, secret, fieldOwner)
	case err != nil:
		return err
	case bytes.Equal(secret.Data[rollout], content):
		return nil
	}
	patch := client.MergeFrom(secret.DeepCopy())
	if content == nil {
		delete(secret.Data, rollout)
	} else {
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[rollout] = content
	}
	if len(secret.Data) == 0 {
		return client.IgnoreNotFound(r.Client.Delete(ctx, secret, client.Preconditions{ResourceVersion: &secret.ResourceVersion}))
	}
	return r.Client.Patch(ctx, secret, patch, fieldOwner)
}
