package registry

import (
	"encoding/json"
	"fmt"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"
)

// edit makes manifest and config of base with a change. Both are edited and
// not written anew, so that fields this program does not know stay.
func edit(base *Image, change Change) (*Image, error) {
	config, err := editConfig(base.Config, change)
	if err != nil {
		return nil, fmt.Errorf("editing the config of %s: %w", base.Reference(), err)
	}
	derived := &Image{MediaType: base.MediaType, Config: config}
	switch base.MediaType {
	case v1.MediaTypeImageManifest:
		derived.Manifest, derived.Layers, err = editOCI(base.Manifest, config, change)
	case manifest.DockerV2Schema2MediaType:
		derived.Manifest, derived.Layers, err = editSchema2(base.Manifest, config, change)
	default:
		err = fmt.Errorf("its manifest is %q, and only OCI and docker schema 2 can be extended", base.MediaType)
	}
	if err != nil {
		return nil, fmt.Errorf("editing the manifest of %s: %w", base.Reference(), err)
	}
	if derived.Digest, err = manifest.Digest(derived.Manifest); err != nil {
		return nil, err
	}
	return derived, json.Unmarshal(config, &derived.Parsed)
}

func editOCI(raw, config []byte, change Change) ([]byte, []types.BlobInfo, error) {
	m, err := manifest.OCI1FromManifest(raw)
	if err != nil {
		return nil, nil, err
	}
	m.Config.Digest, m.Config.Size, m.Config.Data = digest.FromBytes(config), int64(len(config)), nil
	for _, layer := range change.Layers {
		m.Layers = append(m.Layers, v1.Descriptor{
			MediaType: v1.MediaTypeImageLayerGzip,
			Digest:    layer.Digest,
			Size:      layer.size(),
		})
	}
	serialized, err := m.Serialize()
	return serialized, blobInfos(m.LayerInfos()), err
}

func editSchema2(raw, config []byte, change Change) ([]byte, []types.BlobInfo, error) {
	m, err := manifest.Schema2FromManifest(raw)
	if err != nil {
		return nil, nil, err
	}
	m.ConfigDescriptor.Digest, m.ConfigDescriptor.Size = digest.FromBytes(config), int64(len(config))
	for _, layer := range change.Layers {
		m.LayersDescriptors = append(m.LayersDescriptors, manifest.Schema2Descriptor{
			MediaType: manifest.DockerV2Schema2LayerMediaType,
			Digest:    layer.Digest,
			Size:      layer.size(),
		})
	}
	serialized, err := m.Serialize()
	return serialized, blobInfos(m.LayerInfos()), err
}

func blobInfos(layers []manifest.LayerInfo) []types.BlobInfo {
	infos := make([]types.BlobInfo, len(layers))
	for i, layer := range layers {
		infos[i] = layer.BlobInfo
	}
	return infos
}

// object is a JSON object of which only some fields are looked at.
type object map[string]json.RawMessage

// read decodes one field into value; a field that is absent or null leaves
// value as it is.
func (o object) read(field string, value any) error {
	raw, present := o[field]
	if !present {
		return nil
	}
	if err := json.Unmarshal(raw, value); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

func (o object) write(field string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	o[field] = raw
	return nil
}

// editConfig adds the layers and sets the labels. The time of creation stays
// the base's: the same input gives the same bytes on another day.
func editConfig(raw []byte, change Change) ([]byte, error) {
	config := object{}
	if err := json.Unmarshal(raw, &config); err != nil {
		return nil, err
	}
	if err := addLayers(config, change.Layers); err != nil {
		return nil, err
	}
	if err := setLabels(config, change.Labels); err != nil {
		return nil, err
	}
	return json.Marshal(config)
}

func addLayers(config object, layers []NewLayer) error {
	if len(layers) == 0 {
		return nil
	}
	rootfs := object{}
	var diffIDs []digest.Digest
	var history []json.RawMessage
	if err := config.read("rootfs", &rootfs); err != nil {
		return err
	}
	if err := rootfs.read("diff_ids", &diffIDs); err != nil {
		return err
	}
	if err := config.read("history", &history); err != nil {
		return err
	}
	for _, layer := range layers {
		diffIDs = append(diffIDs, layer.DiffID)
		encoded, err := historyEntry(config, layer)
		if err != nil {
			return err
		}
		history = append(history, encoded)
	}
	if err := rootfs.write("diff_ids", diffIDs); err != nil {
		return err
	}
	if err := config.write("rootfs", rootfs); err != nil {
		return err
	}
	return config.write("history", history)
}

// historyEntry carries the base's time of creation, too.
func historyEntry(config object, layer NewLayer) (json.RawMessage, error) {
	entry := object{}
	if created, known := config["created"]; known {
		entry["created"] = created
	}
	if err := entry.write("created_by", layer.CreatedBy); err != nil {
		return nil, err
	}
	return json.Marshal(entry)
}

func setLabels(config object, labels map[string]string) error {
	if len(labels) == 0 {
		return nil
	}
	runtime := object{}
	if err := config.read("config", &runtime); err != nil {
		return err
	}
	if runtime == nil { // "config":null
		runtime = object{}
	}
	all := map[string]string{}
	if err := runtime.read("Labels", &all); err != nil {
		return err
	}
	if all == nil { // "Labels":null
		all = map[string]string{}
	}
	for name, value := range labels {
		if all[name] = value; value == "" {
			delete(all, name)
		}
	}
	if err := runtime.write("Labels", all); err != nil {
		return err
	}
	return config.write("config", runtime)
}
