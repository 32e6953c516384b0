package machineosbuild

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/controllers/pullsecret"
)

// maxRequestSize is what a ConfigMap holds, in bytes, less some room for its
// metadata.
const maxRequestSize = 1<<20 - 8<<10

// newRequest packs what the builder has to know. An error is about the content
// of the rendered config.
func newRequest(build *mcfgv1.MachineOSBuild, print *blueprint) ([]byte, error) {
	config, err := builderIgnition(print.rendered.Spec.Config.Raw)
	if err != nil {
		return nil, err
	}
	asked := &request.Request{
		Name:            build.Name,
		InputsHash:      print.inputs.Image.hash(),
		BaseImage:       print.rendered.Spec.OSImageURL,
		Extensions:      print.inputs.Image.Extensions,
		KernelType:      print.inputs.Image.KernelType,
		KernelArguments: print.inputs.Image.KernelArguments,
		Ignition:        config,
		Containerfile:   print.containerfile,
		AgentImage:      print.agentImage,
		Architecture:    print.inputs.Image.Architecture,
		PushSpec:        string(build.Spec.RenderedImagePushSpec),
		Rebuild:         print.inputs.Image.Rebuild,
	}
	if print.usesExtensions {
		asked.ExtensionsImage = print.rendered.Spec.BaseOSExtensionsContainerImage
	}
	packed, err := request.Encode(asked)
	if err != nil {
		return nil, err
	}
	if len(packed) > maxRequestSize {
		return nil, fmt.Errorf("the rendered config has %d bytes packed, more than the %d that a build can be handed; make its files smaller",
			len(packed), maxRequestSize)
	}
	return packed, nil
}

// supplies are the objects that a build's pod mounts, owned by its Job: they go
// with it.
func supplies(build *mcfgv1.MachineOSBuild, job *batchv1.Job, owner *scope, packed []byte) ([]client.Object, error) {
	pull, err := owner.pullAuths()
	if err != nil {
		return nil, err
	}
	push, err := owner.authsOf(owner.pushSecretRef())
	if err != nil {
		return nil, err
	}
	pullSecret, err := credentialsSecret(pull)
	if err != nil {
		return nil, err
	}
	pushSecret, err := credentialsSecret(push)
	if err != nil {
		return nil, err
	}
	asked := &corev1.ConfigMap{BinaryData: map[string][]byte{request.FileRequest: packed}}
	objects := []client.Object{
		supply(pullSecret, pullSecretName(build.Name), build, job),
		supply(pushSecret, pushSecretName(build.Name), build, job),
		supply(asked, requestName(build.Name), build, job),
	}
	if owner.site.trustBundle != "" {
		trust := &corev1.ConfigMap{Data: map[string]string{keys.KeyTrustBundle: owner.site.trustBundle}}
		objects = append(objects, supply(trust, trustBundleName(build.Name), build, job))
	}
	if runsPrograms(job) {
		objects = append(objects, repositorySupplies(build, job, &owner.repositories)...)
	}
	return objects, nil
}

// repositorySupplies are copies of what the package manager gets: the build goes
// on with what it was planned with.
func repositorySupplies(build *mcfgv1.MachineOSBuild, job *batchv1.Job, found *repositories) []client.Object {
	var objects []client.Object
	if found.yumRepos != nil {
		repos := &corev1.ConfigMap{Data: found.yumRepos.Data, BinaryData: found.yumRepos.BinaryData}
		objects = append(objects, supply(repos, yumReposName(build.Name), build, job))
	}
	if found.gpgKeys != nil {
		objects = append(objects, supply(&corev1.Secret{Data: found.gpgKeys.Data}, gpgKeysName(build.Name), build, job))
	}
	if found.entitlement != nil {
		objects = append(objects, supply(&corev1.Secret{Data: found.entitlement.Data}, entitlementName(build.Name), build, job))
	}
	return objects
}

func credentialsSecret(credentials pullsecret.Auths) (*corev1.Secret, error) {
	config, err := credentials.ConfigJSON()
	if err != nil {
		return nil, err
	}
	return &corev1.Secret{
		Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: config},
	}, nil
}

// supply gives an object its metadata.
func supply(object client.Object, name string, build *mcfgv1.MachineOSBuild, job *batchv1.Job) client.Object {
	object.SetNamespace(job.Namespace)
	object.SetName(name)
	object.SetLabels(inputLabels(build))
	object.SetAnnotations(map[string]string{keys.AnnotationFullName: build.Name})
	object.SetOwnerReferences([]metav1.OwnerReference{
		*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job")),
	})
	return object
}

// createSupplies creates what is not there yet, side by side.
func (r *buildReconciler) createSupplies(ctx context.Context, job *batchv1.Job, objects []client.Object) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, object := range objects {
		group.Go(func() error { return r.createSupply(ctx, job, object) })
	}
	return group.Wait()
}

// createSupply creates one object. Another of the same name that an earlier Job
// left behind is deleted, and errLeftover asks for another try: it may hold old
// content.
func (r *buildReconciler) createSupply(ctx context.Context, job *batchv1.Job, object client.Object) error {
	err := r.client.Create(ctx, object)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
		return nil
	}
	// Not from the cache, which may not have what was created just now.
	existing := object.DeepCopyObject().(client.Object)
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(object), existing); err != nil {
		return fmt.Errorf("read %T %s, which exists already: %w", object, object.GetName(), err)
	}
	if isOwnedBy(existing, job.UID) {
		return nil
	}
	if err := r.client.Delete(ctx, existing, uidOf(existing)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %T %s of an earlier build: %w", object, object.GetName(), err)
	}
	return errLeftover
}

// uidOf keeps a deletion from hitting another object of the same name.
func uidOf(object client.Object) client.Preconditions {
	uid := object.GetUID()
	return client.Preconditions{UID: &uid}
}
