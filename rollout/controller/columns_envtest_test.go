//go:build envtest

package controller

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/envtest"
)

// TestTheListShowsWhyARolloutIsDegraded, also when nothing is left to update.
func TestTheListShowsWhyARolloutIsDegraded(t *testing.T) {
	config := envtest.Start(t)
	server, err := client.New(config, client.Options{Scheme: newScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	rollout := &v1alpha1.ImageRollout{}
	rollout.Name = "columns"
	if err := server.Create(t.Context(), rollout); err != nil {
		t.Fatal(err)
	}
	for kind, reason := range map[string]string{v1alpha1.ConditionProgressing: "Updated", v1alpha1.ConditionDegraded: "NodeDrifted"} {
		found := condition(kind, kind == v1alpha1.ConditionDegraded, reason, "about "+kind)
		found.LastTransitionTime = metav1.Now()
		rollout.Status.Conditions = append(rollout.Status.Conditions, found)
	}
	if err := server.Status().Update(t.Context(), rollout); err != nil {
		t.Fatal(err)
	}
	got := tableOf(t, config, "/apis/imagemode.dev/v1alpha1/imagerollouts/columns")
	for column, want := range map[string]any{"Progressing": "False", "Reason": "Updated", "Degraded": "True", "Trouble": "NodeDrifted", "Message": "about Degraded"} {
		i := slices.IndexFunc(got.ColumnDefinitions, func(c metav1.TableColumnDefinition) bool { return c.Name == column })
		if i < 0 || got.Rows[0].Cells[i] != want {
			t.Errorf("column %s is not %q: %v", column, want, got.Rows[0].Cells)
		} else if isWide := got.ColumnDefinitions[i].Priority > 0; isWide != (column == "Message") {
			t.Errorf("column %s has priority %d", column, got.ColumnDefinitions[i].Priority)
		}
	}
}

// tableOf is what kubectl get shows.
func tableOf(t *testing.T, config *rest.Config, path string) metav1.Table {
	t.Helper()
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, host.JoinPath(path).String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	answer, err := connection.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var table metav1.Table
	if err := json.NewDecoder(answer.Body).Decode(&table); err != nil || len(table.Rows) != 1 {
		t.Fatalf("%s: %d rows, error %v", answer.Status, len(table.Rows), err)
	}
	return table
}
