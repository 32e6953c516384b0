package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestTheServiceTakesTheKubeletsCredential(t *testing.T) {
	directory := t.TempDir()
	usual, other := filepath.Join(directory, "usual"), filepath.Join(directory, "other")
	t.Run("the first that there is", func(t *testing.T) {
		t.Setenv("KUBECONFIG", "")
		write(t, other)
		if err := useKubeletCredential(t.Context(), []string{usual, other}, time.Millisecond); err != nil || os.Getenv("KUBECONFIG") != other {
			t.Errorf("%q, %v", os.Getenv("KUBECONFIG"), err)
		}
	})
	t.Run("one that comes later", func(t *testing.T) {
		t.Setenv("KUBECONFIG", "")
		late := filepath.Join(directory, "late")
		time.AfterFunc(50*time.Millisecond, func() { write(t, late) })
		if err := useKubeletCredential(t.Context(), []string{late}, time.Millisecond); err != nil || os.Getenv("KUBECONFIG") != late {
			t.Errorf("%q, %v", os.Getenv("KUBECONFIG"), err)
		}
	})
	t.Run("another that somebody has named", func(t *testing.T) {
		t.Setenv("KUBECONFIG", "/named")
		if err := useKubeletCredential(t.Context(), []string{other}, time.Millisecond); err != nil || os.Getenv("KUBECONFIG") != "/named" {
			t.Errorf("%q, %v", os.Getenv("KUBECONFIG"), err)
		}
	})
	t.Run("none until it is ended", func(t *testing.T) {
		t.Setenv("KUBECONFIG", "")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := useKubeletCredential(ctx, []string{usual}, time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

func write(t *testing.T, path string) {
	if err := os.WriteFile(path, []byte("apiVersion: v1\n"), 0o600); err != nil {
		t.Error(err)
	}
}
