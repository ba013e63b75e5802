package podspec

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/text"
)

// PullPolicy returns the policy, or if it is empty the default for the image: Always for the tag "latest", which is
// also that of an image without a tag and a digest, else IfNotPresent (API reference, imagePullPolicy).
func PullPolicy(image string, policy v1.PullPolicy) v1.PullPolicy {
	if policy != "" {
		return policy
	}
	if name, err := ParseImageName(image); err == nil && strings.HasSuffix(name.Name, ":latest") {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

// ImageName is the parsed name of an image.
type ImageName struct {
	// Name is the name as the spec has it. If that has neither a tag nor a digest, the tag "latest" is added. The
	// runtime completes short names.
	Name string
	// Repository is the full name without tag and digest, such as "docker.io/library/busybox".
	Repository string
	// FullName is Repository with the digest or, if there is none, the tag.
	FullName string
}

// ParseImageName parses the name of an image in a spec.
func ParseImageName(image string) (ImageName, error) {
	ref, err := text.ParseImageRef(image)
	if err != nil {
		return ImageName{}, fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	name := ImageName{Name: image, Repository: ref.Repository}
	switch {
	case ref.Digest != "":
		name.FullName = ref.Repository + "@" + ref.Digest
	case ref.Tag != "":
		name.FullName = ref.Repository + ":" + ref.Tag
	default:
		name.Name, name.FullName = image+":latest", ref.Repository+":latest"
	}
	return name, nil
}
