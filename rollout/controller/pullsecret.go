package controller

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// nodePullSecret carries the pull secrets of all rollouts to the agents, one
// key per rollout: agents have no right to read Secrets, it is mounted.
const nodePullSecret = "imagemode-node-pull"

// secretFresh is how long a pull secret that was copied is not looked at again:
// passes follow each other several times a second.
const secretFresh = 10 * time.Second

// copiedSecret is a pull secret that the agents have.
type copiedSecret struct {
	reference *v1alpha1.SecretReference
	hash      string
	at        time.Time
}

// syncPullSecret copies the rollout's pull secret to where the agents see it
// and returns the hash of its content. A problem is for the user to mend; what
// the agents have is left to them meanwhile.
func (r *Reconciler) syncPullSecret(ctx context.Context, rollout *v1alpha1.ImageRollout) (hash, problem string, err error) {
	reference := rollout.Spec.PullSecretRef
	last, isKnown := r.copied[rollout.Name]
	if isKnown && equality.Semantic.DeepEqual(last.reference, reference) && r.now().Sub(last.at) < secretFresh {
		return last.hash, "", nil
	}
	delete(r.copied, rollout.Name)
	hash, problem, err = r.copyPullSecret(ctx, rollout.Name, reference)
	if err == nil && problem == "" {
		if r.copied == nil {
			r.copied = map[string]copiedSecret{}
		}
		r.copied[rollout.Name] = copiedSecret{reference, hash, r.now()}
	}
	return hash, problem, err
}

func (r *Reconciler) copyPullSecret(ctx context.Context, rollout string, reference *v1alpha1.SecretReference) (hash, problem string, err error) {
	if reference == nil {
		return "", "", r.setPullSecret(ctx, rollout, nil)
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
	err = r.setPullSecret(ctx, rollout, content)
	if isRefused(err) { // a quota, or the Secret is full
		return "", fmt.Sprintf("%s could not be brought to the agents, by Secret %s/%s: %s", name, r.Options.Namespace, nodePullSecret, oneLine(err.Error())), nil
	}
	return hex.EncodeToString(sum[:]), "", err
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
