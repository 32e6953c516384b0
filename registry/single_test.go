package registry_test

import (
	"context"
	"testing"

	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/registry/registrytest"
)

func TestPushSingleIsReadBack(t *testing.T) {
	server := registrytest.New(t)
	access := accessTo(server)
	to := registry.Target{Access: access, Repository: server.Host + "/os/worker", Tags: []string{"one", "two"}}
	layer := layerOf("a")
	if err := registry.PushSingle(context.Background(), to, layer, map[string]string{"a": "b"}); err != nil {
		t.Fatal(err)
	}
	for _, tag := range to.Tags {
		image, err := registry.Inspect(context.Background(), access, to.Repository+":"+tag)
		if err != nil {
			t.Fatal(err)
		}
		if len(image.Layers) != 1 || image.Layers[0].Digest != layer.Digest || image.Layers[0].Size != int64(len(layer.Data)) {
			t.Errorf("%s: layers %v", tag, image.Layers)
		}
		if config := image.Parsed; config.Config.Labels["a"] != "b" || len(config.RootFS.DiffIDs) != 1 || config.RootFS.DiffIDs[0] != layer.DiffID {
			t.Errorf("%s: config %s", tag, image.Config)
		}
	}
}
