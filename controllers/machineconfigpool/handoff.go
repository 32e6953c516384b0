package machineconfigpool

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
)

// handOffManager owns the fields of an ImageRollout that a pool decides.
const handOffManager = "imagemode-machineconfigpool"

// order is what a pool asks of its rollout: the fields of the ImageRollout that
// are this controller's, and no other.
type order struct {
	image string
	// config is the rendered MachineConfig that the image was built from. It stands
	// in an annotation, so that both move together for whoever reads.
	config         string
	nodeSelector   *metav1.LabelSelector
	paused         bool
	maxUnavailable intstr.IntOrString
	pullSecret     *v1alpha1.SecretReference
	live           *v1alpha1.LiveContent
}

// orderFor decides what the pool's rollout is to do; false: there is nothing
// to write. A pool that never had an image has no rollout, and a pool without a
// new image (its build runs or failed, or its MachineOSConfig went away)
// keeps the target that it has, while pause and maxUnavailable still follow
// the pool at once.
func orderFor(pool *mcfgv1.MachineConfigPool, target target, existing *v1alpha1.ImageRollout, options Options) (order, bool) {
	if isAbandoned(target.osConfig) {
		return order{}, false
	}
	image, selector := target.image(), nodesOf(pool.Name)
	answer := order{image: image, nodeSelector: selector, paused: pool.Spec.Paused}
	answer.maxUnavailable, _ = maxUnavailable(pool)
	if image == "" {
		isHandedOff := existing != nil && existing.Spec.Image != "" && equality.Semantic.DeepEqual(existing.Spec.NodeSelector, selector)
		switch {
		case target.last != nil && mayPutBack(target.osConfig, existing):
			answer.image, answer.config = target.last.image, target.last.config
			answer.pullSecret = target.last.secretIn(options.Namespace)
		case isHandedOff:
			// The secret belongs to the image: a MachineOSConfig that went away
			// must not take it from nodes that still pull.
			answer.image, answer.pullSecret = existing.Spec.Image, existing.Spec.PullSecretRef
			answer.config = existing.Annotations[machineconfiguration.AnnotationRolloutConfig]
		default:
			return order{}, false
		}
		return answer, true
	}
	answer.config = pool.Spec.Configuration.Name
	if target.osConfig == nil {
		answer.pullSecret = existing.Spec.PullSecretRef
		return answer, true
	}
	name := options.NodePullSecret
	if own := target.osConfig.Annotations[machineconfiguration.AnnotationNodePullSecret]; own != "" {
		name = own
	}
	if name != "" {
		answer.pullSecret = &v1alpha1.SecretReference{Name: name, Namespace: options.Namespace}
	}
	return answer, true
}

// isAbandoned reports whether a MachineOSConfig is being deleted without another
// image for its nodes: their rollout is deleted, and must not come back.
func isAbandoned(config *mcfgv1.MachineOSConfig) bool {
	if config == nil || config.DeletionTimestamp == nil {
		return false
	}
	_, abandoned := config.Annotations[machineconfiguration.AnnotationAbandon]
	return abandoned
}

// nodesOf selects the nodes that membership gave to a pool.
func nodesOf(pool string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{
		machineconfiguration.LabelNodePool: machineconfiguration.PoolLabelValue(pool),
	}}
}

// percentage is what an ImageRollout takes as a percentage of nodes.
var percentage = regexp.MustCompile(`^(100|[1-9]?[0-9])%$`)

// maxUnavailable returns the pool's spec.maxUnavailable, 1 where there is none.
// A value that makes no sense counts as 1 and comes with a problem.
func maxUnavailable(pool *mcfgv1.MachineConfigPool) (limit intstr.IntOrString, problem string) {
	wanted := pool.Spec.MaxUnavailable
	if wanted == nil {
		return intstr.FromInt32(1), ""
	}
	isNumber := wanted.Type == intstr.Int && wanted.IntVal >= 0
	isPercentage := wanted.Type == intstr.String && percentage.MatchString(wanted.StrVal)
	if isNumber || isPercentage {
		return *wanted, ""
	}
	return intstr.FromInt32(1), fmt.Sprintf(
		"spec.maxUnavailable %q of MachineConfigPool %s is neither a number of nodes nor a percentage from 0%% to 100%%; 1 is used instead", wanted.String(), pool.Name)
}

// oddMaxUnavailable is the event for a spec.maxUnavailable that is not taken as it
// stands; the reason is empty when it is.
func oddMaxUnavailable(pool *mcfgv1.MachineConfigPool) (reason, message string) {
	limit, problem := maxUnavailable(pool)
	if problem != "" {
		return "InvalidMaxUnavailable", problem
	}
	if text := limit.String(); text == "0" || text == "0%" {
		return "MaxUnavailableZero", fmt.Sprintf(
			"spec.maxUnavailable %s of MachineConfigPool %s is taken as 1: with 0 no node could ever be updated; use spec.paused to hold the nodes back", text, pool.Name)
	}
	return "", ""
}

// isIn reports whether the rollout already says all of it.
func (o order) isIn(existing *v1alpha1.ImageRollout) bool {
	if existing == nil {
		return false
	}
	spec := existing.Spec
	return spec.Image == o.image && spec.Paused == o.paused &&
		existing.Annotations[machineconfiguration.AnnotationRolloutConfig] == o.config &&
		equality.Semantic.DeepEqual(spec.NodeSelector, o.nodeSelector) &&
		equality.Semantic.DeepEqual(spec.MaxUnavailable, &o.maxUnavailable) &&
		equality.Semantic.DeepEqual(spec.PullSecretRef, o.pullSecret) &&
		equality.Semantic.DeepEqual(spec.Live, o.live)
}

// applyConfiguration holds exactly the fields that are ours, so that no zero
// value of a field that is the user's is sent along.
func (o order) applyConfiguration(pool string, existing *v1alpha1.ImageRollout) (*unstructured.Unstructured, error) {
	spec := map[string]any{
		"image":          o.image,
		"paused":         o.paused,
		"nodeSelector":   map[string]any{"matchLabels": toAny(o.nodeSelector.MatchLabels)},
		"maxUnavailable": int64(o.maxUnavailable.IntVal),
	}
	if o.maxUnavailable.Type == intstr.String {
		spec["maxUnavailable"] = o.maxUnavailable.StrVal
	}
	if o.pullSecret != nil {
		spec["pullSecretRef"] = map[string]any{"name": o.pullSecret.Name, "namespace": o.pullSecret.Namespace}
	}
	if o.live != nil {
		live, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.live)
		if err != nil {
			return nil, fmt.Errorf("write the live content of ImageRollout %s: %w", pool, err)
		}
		spec["live"] = live
	}
	rollout := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	rollout.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ImageRollout"))
	rollout.SetName(pool)
	if o.config != "" {
		rollout.SetAnnotations(map[string]string{machineconfiguration.AnnotationRolloutConfig: o.config})
	}
	if existing != nil {
		// An older view of the rollout must not bring its old image back.
		rollout.SetResourceVersion(existing.ResourceVersion)
		rollout.SetUID(existing.UID)
	}
	return rollout, nil
}

func toAny(values map[string]string) map[string]any {
	converted := make(map[string]any, len(values))
	for key, value := range values {
		converted[key] = value
	}
	return converted
}

// handOff writes the pool's order to its ImageRollout where it differs. What
// reaches the nodes without an image follows the wanted config at once; while
// that cannot be rendered, wanted is nil and it stays as it is.
func (r *poolReconciler) handOff(ctx context.Context, scope *scope, target target, wanted *rendered) error {
	order, isNeeded, err := r.order(ctx, scope, target)
	if err != nil || !isNeeded {
		return err
	}
	switch {
	case wanted != nil:
		order.live = wanted.live
	case scope.rollout != nil:
		order.live = scope.rollout.Spec.Live
	default:
		// Without them in a new rollout, nodes would lose their keys and certificates.
		if wanted, err = scope.presentConfig(); err != nil || wanted == nil {
			return nil // RenderDegraded says why
		}
		order.live = wanted.live
	}
	r.rollouts.expect(scope)
	if err := r.remember(ctx, scope, target, order); err != nil || order.isIn(scope.rollout) {
		return err
	}
	if err := r.confirm(ctx, scope, target); err != nil {
		return err
	}
	if reason, message := oddMaxUnavailable(scope.pool); reason != "" {
		r.events.Eventf(scope.pool, nil, corev1.EventTypeWarning, reason, "HandOff", "%s", message)
	}
	rollout, err := order.applyConfiguration(scope.pool.Name, scope.rollout)
	if err != nil {
		return err
	}
	if err := r.apply(ctx, scope.pool, rollout); err != nil {
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
			// It is tried again, and comes to the same until somebody mends what it names.
			r.events.Eventf(scope.pool, nil, corev1.EventTypeWarning, "HandOffRefused", "HandOff", "%s", shortened("the API server refuses what the nodes are to have: "+err.Error()))
		}
		return fmt.Errorf("apply ImageRollout %s: %w", scope.pool.Name, err)
	}
	if r.rollouts.isAnew(scope.pool.Name, rollout.GetUID()) {
		r.announceAnew(scope)
	}
	log.FromContext(ctx).Info("handed off to the rollout", "image", order.image, "paused", order.paused)
	if scope.rollout == nil || scope.rollout.Spec.Image != order.image {
		r.events.Eventf(scope.pool, nil, corev1.EventTypeNormal, "SetDesiredConfigAndOSImage", "HandOff",
			"MachineConfig %s / Image %s goes to the nodes", order.config, order.image)
	}
	return nil
}

// order is what the rollout is to do, if it is this controller that says so. Where
// a machine-config-daemon takes nodes to their images, nothing new is handed
// off, and what was before is held.
func (r *poolReconciler) order(ctx context.Context, scope *scope, target target) (order, bool, error) {
	if r.options.Off.HandOff {
		return order{}, false, nil
	}
	answer, isNeeded := orderFor(scope.pool, target, scope.rollout, r.options)
	if !isNeeded {
		return order{}, false, nil
	}
	found, err := r.rivals.Look(ctx)
	if err != nil || !found.Daemon {
		return answer, err == nil, err
	}
	answer, isNeeded = orderFor(scope.pool, target.withoutImage(), scope.rollout, r.options)
	answer.paused = true
	return answer, isNeeded, nil
}

// apply writes the fields of the hand-off. They are this controller's: what
// somebody else has made of them is overruled, and the pool says whose it was.
func (r *poolReconciler) apply(ctx context.Context, pool *mcfgv1.MachineConfigPool, rollout *unstructured.Unstructured) error {
	err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(rollout), client.FieldOwner(handOffManager))
	others := otherManagers(err)
	if len(others) == 0 {
		return err
	}
	if err := r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(rollout), client.FieldOwner(handOffManager), client.ForceOwnership); err != nil {
		return err
	}
	r.events.Eventf(pool, nil, corev1.EventTypeWarning, "FieldOverruled", "HandOff", "%s", shortened(fmt.Sprintf(
		"ImageRollout %s has fields that follow MachineConfigPool %s and its MachineOSConfig; overruled was: %s", rollout.GetName(), pool.Name, strings.Join(others, "; "))))
	return nil
}

// otherManagers says, of a refusal to apply, which field somebody else has set to
// another value, and who; nothing for any other error.
func otherManagers(err error) []string {
	status, isStatus := err.(apierrors.APIStatus) //nolint:errorlint // as the client returns it
	if err == nil || !isStatus || status.Status().Details == nil {
		return nil
	}
	var others []string
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			others = append(others, cause.Field+", "+cause.Message)
		}
	}
	return others
}
