package streams

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// MaxPayloadSize bounds the ImageStream of a release payload in bytes. Those
// of real releases have some hundred kilobytes.
const MaxPayloadSize = 4 << 20

// maxPayloadImages bounds the images of a payload that may be OS images: two
// for each stream the API takes.
const maxPayloadImages = 2 * maxStreams

// Payload is what matters here of a release payload's ImageStream.
type Payload struct {
	// Version is the ImageStream's name, such as 5.0.0.
	Version string `json:"version"`
	// Images that may belong to a stream, in the order of the payload.
	Images []PayloadImage `json:"images,omitempty"`
}

// PayloadImage is one tag of the payload.
type PayloadImage struct {
	Tag   string `json:"tag"`
	Image string `json:"image"`
}

// imageStream is the part of an image.openshift.io/v1 ImageStream that is read.
type imageStream struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Tags []imageStreamTag `json:"tags"`
	} `json:"spec"`
}

type imageStreamTag struct {
	Name        string            `json:"name"`
	Annotations map[string]string `json:"annotations"`
	From        *struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	} `json:"from"`
}

// payloadTag is a tag that the ImageStream of a release has, and no other.
const payloadTag = "machine-config-operator"

// ErrNotPayload is the error for an ImageStream of something else.
var ErrNotPayload = errors.New("it is an ImageStream without the tag " + payloadTag + ", and so not that of a release payload")

// ParsePayload reads the ImageStream of a release payload, as JSON or YAML. Of
// its tags those are kept that may be OS or extensions images: they were built
// from the repository of OS images, or are named as such. The error
// ErrNotPayload says that it is another ImageStream.
func ParsePayload(raw []byte) (*Payload, error) {
	stream, err := parseImageStream(raw)
	if err != nil {
		return nil, err
	}
	payload := &Payload{Version: stream.Metadata.Name}
	isPayload := false
	for _, tag := range stream.Spec.Tags {
		isPayload = isPayload || tag.Name == payloadTag
		if !mayBeOS(tag) {
			continue
		}
		if len(payload.Images) == maxPayloadImages {
			return nil, fmt.Errorf("it has more than %d tags that may be OS images", maxPayloadImages)
		}
		payload.Images = append(payload.Images, PayloadImage{Tag: tag.Name, Image: tag.From.Name})
	}
	if !isPayload {
		return nil, ErrNotPayload
	}
	return payload, nil
}

func parseImageStream(raw []byte) (*imageStream, error) {
	if len(raw) > MaxPayloadSize {
		return nil, fmt.Errorf("it has %d bytes, and %d are read at most", len(raw), MaxPayloadSize)
	}
	stream := &imageStream{}
	decode := func(raw []byte, into any) error { return yaml.Unmarshal(raw, into) }
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		decode = json.Unmarshal // a release's, and much faster
	}
	if err := decode(raw, stream); err != nil {
		return nil, fmt.Errorf("it is no ImageStream: %s", oneLine(err))
	}
	if stream.Kind != "ImageStream" || stream.APIVersion != "image.openshift.io/v1" {
		return nil, fmt.Errorf("it is %q of %q, and not an ImageStream of image.openshift.io/v1", stream.Kind, stream.APIVersion)
	}
	return stream, nil
}

const (
	annotationSource = "io.openshift.build.source-location"
	osRepository     = "github.com/openshift/os"
)

// osTag matches the names that releases give the tags of OS images.
var osTag = regexp.MustCompile(`^(rhel|stream)[a-zA-Z0-9.-]*-coreos[a-zA-Z0-9.-]*(-extensions[a-zA-Z0-9.-]*)?$`)

func mayBeOS(tag imageStreamTag) bool {
	return tag.From != nil && tag.From.Kind == "DockerImage" &&
		(strings.Contains(tag.Annotations[annotationSource], osRepository) || osTag.MatchString(tag.Name))
}

// digestOf returns what stands behind the @; empty: nothing.
func digestOf(image string) string {
	_, digest, _ := strings.Cut(image, "@")
	return digest
}
