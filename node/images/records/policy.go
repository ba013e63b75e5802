package records

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kubeletkit/kubeletkit/internal/text"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Policy says for which images that are present the credentials of a pod are verified (kubelet's
// imagePullCredentialsVerificationPolicy).
type Policy string

const (
	// NeverVerify permits every image to every pod.
	NeverVerify Policy = "NeverVerify"
	// NeverVerifyPreloadedImages permits images that the agent has not pulled. It is the default.
	NeverVerifyPreloadedImages Policy = "NeverVerifyPreloadedImages"
	// NeverVerifyAllowlistedImages permits the images in [Options].Allowlist.
	NeverVerifyAllowlistedImages Policy = "NeverVerifyAllowlistedImages"
	// AlwaysVerify permits no image without verification.
	AlwaysVerify Policy = "AlwaysVerify"
)

// Decision says whether a pod may use an image that is present. The values are those of the label of kubelet's metric
// kubelet_imagemanager_image_mustpull_checks_total.
type Decision string

const (
	// AllowedByPolicy means that the pod may use the image, since the policy requires no verification.
	AllowedByPolicy Decision = "credentialPolicyAllowed"
	// AllowedByRecord means that the pod may use the image, since the record of the image permits it.
	AllowedByRecord Decision = "credentialRecordFound"
	// MustPull means that the pod needs a pull, in which a registry decides.
	MustPull Decision = "mustAuthenticate"
	// Undecided means that the pod needs a pull, since a file or its credentials cannot be read.
	Undecided Decision = "error"
)

// MayUse reports whether the pod may use the image without a pull.
func (d Decision) MayUse() bool { return d == AllowedByPolicy || d == AllowedByRecord }

// rule is a policy with its list.
type rule struct {
	policy Policy
	// names are the names in the list, prefixes the beginnings of names.
	names    map[string]struct{}
	prefixes []string
}

func newRule(policy Policy, allowlist []string) (rule, error) {
	r := rule{policy: policy, names: map[string]struct{}{}}
	var errs []error
	switch policy {
	case NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages, AlwaysVerify:
		if len(allowlist) > 0 && policy != NeverVerifyAllowlistedImages {
			errs = append(errs, fmt.Errorf("the policy %s has no allowlist; use %s", policy,
				NeverVerifyAllowlistedImages))
		}
	default:
		errs = append(errs, fmt.Errorf("unknown policy %q; use %s, %s, %s or %s", policy, NeverVerify,
			NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages, AlwaysVerify))
	}
	for _, pattern := range allowlist {
		if err := r.add(pattern); err != nil {
			errs = append(errs, fmt.Errorf("%q in the allowlist: %w", pattern, err))
		}
	}
	return r, errors.Join(errs...)
}

// add adds a pattern: the name of an image without tag and digest, or the beginning of names with the suffix "/*".
func (r *rule) add(pattern string) error {
	if strings.TrimSpace(pattern) != pattern {
		return errors.New("it has spaces at its beginning or end")
	}
	prefix, wildcard := strings.CutSuffix(pattern, "*")
	switch {
	case pattern == "":
		return errors.New("it is empty")
	case strings.Contains(prefix, "*"), wildcard && !strings.HasSuffix(prefix, "/"):
		return errors.New(`"*" is possible only in the suffix "/*"`)
	case prefix == "/":
		return errors.New("at least the host of a registry is necessary")
	case wildcard:
		r.prefixes = append(r.prefixes, prefix)
		return nil
	}
	name, err := nameOf(pattern)
	if err != nil {
		return err
	}
	if name != pattern {
		return errors.New("it has a tag or a digest")
	}
	r.names[pattern] = struct{}{}
	return nil
}

// permits reports whether the rule permits the image, whatever is recorded.
func (r *rule) permits(image string) bool {
	switch r.policy {
	case NeverVerify:
		return true
	case NeverVerifyAllowlistedImages:
		return r.lists(image)
	default:
		return false
	}
}

func (r *rule) lists(image string) bool {
	name, err := nameOf(image)
	if err != nil {
		name = image
	}
	if _, ok := r.names[name]; ok {
		return true
	}
	for _, prefix := range r.prefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// nameOf returns an image as a pod has it, without tag and digest. Short names stay short.
func nameOf(image string) (string, error) {
	ref, err := text.ParseImageRef(image)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	if ref.Digest != "" {
		image = strings.TrimSuffix(image, "@"+ref.Digest)
	}
	if ref.Tag != "" {
		image = strings.TrimSuffix(image, ":"+ref.Tag)
	}
	return image, nil
}

// isShort reports whether an image has no registry in its name. A runtime may complete it with another one than
// docker.io.
func isShort(image string) bool {
	ref, err := text.ParseImageRef(image)
	return err == nil && !strings.HasPrefix(image, ref.Repository)
}

// repositoryOf returns the full name of an image without tag and digest, and whether it has a digest.
func repositoryOf(image string) (name string, byDigest bool) {
	ref, err := text.ParseImageRef(image)
	if err != nil {
		return image, false
	}
	return ref.Repository, ref.Digest != ""
}

// fullName returns the full name of an image with its digest or, if it has none, its tag. Two images with the same full
// name are the same image for a runtime. An image that is not valid is its own full name.
func fullName(image string) string {
	name, err := podspec.ParseImageName(image)
	if err != nil {
		return image
	}
	return name.FullName
}
