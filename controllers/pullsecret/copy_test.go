package pullsecret

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var target = types.NamespacedName{Namespace: "openshift-machine-config-operator", Name: "global-pull-secret-copy"}

func secretOf(key types.NamespacedName, config string, annotations ...string) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Annotations: map[string]string{}},
		Type:       corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(config)},
	}
	for _, annotation := range annotations {
		secret.Annotations[annotation] = original.String()
	}
	return secret
}

func legacy(secret *corev1.Secret) *corev1.Secret {
	secret.Type, secret.Data = corev1.SecretTypeDockercfg, map[string][]byte{corev1.DockerConfigKey: []byte("{}")}
	return secret
}

func TestTheCopyFollowsThePlatformsPullSecret(t *testing.T) {
	for name, tc := range map[string]struct {
		original, kept *corev1.Secret
		isForbidden    bool
		want           string
		writes         int
	}{
		"there is none":                          {},
		"it is copied":                           {original: secretOf(original, "new"), want: "new", writes: 1},
		"it changed":                             {original: secretOf(original, "new"), kept: secretOf(target, "old", annotationCopyOf), want: "new", writes: 1},
		"nothing changed":                        {original: secretOf(original, "new"), kept: secretOf(target, "new", annotationCopyOf), want: "new"},
		"it is of another type now":              {original: secretOf(original, "new"), kept: legacy(secretOf(target, "", annotationCopyOf)), want: "new", writes: 2},
		"it is gone, and so is the copy":         {kept: secretOf(target, "old", annotationCopyOf), writes: 1},
		"a user's own stays":                     {original: secretOf(original, "new"), kept: secretOf(target, "mine"), want: "mine"},
		"a user's own stays without it":          {kept: secretOf(target, "mine"), want: "mine"},
		"without rights nothing is touched":      {isForbidden: true, kept: secretOf(target, "old", annotationCopyOf), want: "old"},
		"without rights and without a copy, too": {isForbidden: true},
	} {
		t.Run(name, func(t *testing.T) {
			writes := 0
			made := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, next client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					if tc.isForbidden && key == original {
						return apierrors.NewForbidden(corev1.Resource("secrets"), key.Name, errors.New("no"))
					}
					return next.Get(ctx, key, object, options...)
				},
				Create: func(ctx context.Context, next client.WithWatch, object client.Object, options ...client.CreateOption) error {
					writes++
					return next.Create(ctx, object, options...)
				},
				Patch: func(ctx context.Context, next client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
					writes++
					return next.Patch(ctx, object, patch, options...)
				},
				Delete: func(ctx context.Context, next client.WithWatch, object client.Object, options ...client.DeleteOption) error {
					writes++
					return next.Delete(ctx, object, options...)
				},
			})
			for _, secret := range []*corev1.Secret{tc.original, tc.kept} {
				if secret != nil {
					secret.UID = types.UID(secret.Name)
					made = made.WithObjects(secret)
				}
			}
			c := made.Build()
			r := &reconciler{client: c, live: c, copy: target}
			result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: target})
			if err != nil || result.RequeueAfter != lookInterval {
				t.Fatalf("%+v, %v", result, err)
			}
			found, got := &corev1.Secret{}, ""
			if err := c.Get(t.Context(), target, found); err == nil {
				got = string(found.Data[corev1.DockerConfigJsonKey])
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || writes != tc.writes {
				t.Errorf("%d writes, want %d; content: %s", writes, tc.writes, diff)
			}
		})
	}
}
