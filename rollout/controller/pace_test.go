package controller

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestARolloutRestsAfterAPass(t *testing.T) { synctest.Test(t, restsAfterAPass) }

func restsAfterAPass(t *testing.T) {
	passes := map[string]int{}
	p := newPaced(reconcile.Func(func(_ context.Context, request ctrl.Request) (ctrl.Result, error) {
		passes[request.Name]++
		time.Sleep(20 * time.Millisecond)
		if request.Name == "ill" {
			return ctrl.Result{}, errors.New("its error")
		}
		return ctrl.Result{RequeueAfter: time.Hour}, nil
	}))
	pass := func(name string) (ctrl.Result, error) {
		return p.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
	if result, err := pass("a"); err != nil || result.RequeueAfter != time.Hour {
		t.Errorf("the first pass answers %+v, %v", result, err)
	}
	result, err := pass("a")
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > maxRest {
		t.Errorf("a second one right after it answers %+v, %v", result, err)
	}
	_, _ = pass("b")
	if passes["a"] != 1 || passes["b"] != 1 {
		t.Errorf("passes %v: b does not wait for a, a waits for itself", passes)
	}
	time.Sleep(result.RequeueAfter)
	_, _ = pass("a")
	if passes["a"] != 2 {
		t.Errorf("passes %v after the rest", passes)
	}
	for range 2 {
		if _, err := pass("ill"); err == nil {
			t.Error("a pass that fails rests, and is tried again without end as fast as the first time")
		}
	}
	time.Sleep(maxRest)
	_, _ = pass("c")
	if len(p.due) != 1 {
		t.Errorf("what is over is kept: %v", p.due)
	}
}
