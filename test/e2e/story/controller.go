package story

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
)

// controllerPatches add ControllerArgs and ControllerEnv to the controller. An
// installation without them takes them away again.
func (s *Story) controllerPatches() []kustomizePatch {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	const container = "/spec/template/spec/containers/0/"
	var operations []operation
	for _, argument := range s.ControllerArgs {
		operations = append(operations, operation{"add", container + "args/-", argument})
	}
	for _, variable := range s.ControllerEnv {
		operations = append(operations, operation{"add", container + "env/-", variable})
	}
	if len(operations) == 0 {
		return nil
	}
	text, err := json.Marshal(operations)
	if err != nil {
		panic(err) // strings only
	}
	return []kustomizePatch{{Patch: string(text), Target: &kustomizeTarget{Kind: "Deployment", Name: "imagemode-controller"}}}
}

// Proxy is the environment of a program that reaches the world through a proxy,
// and this cluster without.
func Proxy(url string) []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "HTTP_PROXY", Value: url}, {Name: "HTTPS_PROXY", Value: url},
		{Name: "NO_PROXY", Value: "10.0.0.0/8,127.0.0.1,localhost"},
	}
}
