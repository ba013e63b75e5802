package config

import (
	"fmt"

	"github.com/kubeletkit/kubeletkit/node/images/records"
)

const (
	// verificationFields are the fields about the right to an image (KEP-2535).
	verificationFields = "imagePullCredentialsVerificationPolicy preloadedImagesVerificationAllowlist featureGates." +
		verificationGate

	verificationGate = "KubeletEnsureSecretPulledImages"
)

// VerifiesImages reports whether pods need a credential for private images that are present.
func (s *Settings) VerifiesImages() bool {
	on, given := s.FeatureGates[verificationGate]
	return (on || !given) && !s.Embedded // whose images are all the host
}

// ImageVerification returns which images are verified.
func (s *Settings) ImageVerification() records.Options {
	return records.Options{Policy: records.Policy(s.ImagePullCredentialsVerificationPolicy),
		Allowlist: s.PreloadedImagesVerificationAllowlist}
}

// verification sets the default of the policy, as in kubelet.
func (s *Settings) verification() {
	if s.VerifiesImages() {
		def(&s.ImagePullCredentialsVerificationPolicy, string(records.NeverVerifyPreloadedImages))
	}
}

// validateVerification judges as kubelet does.
func (s *Settings) validateVerification() error {
	if on, given := s.FeatureGates[verificationGate]; given && !on {
		if s.ImagePullCredentialsVerificationPolicy != "" || len(s.PreloadedImagesVerificationAllowlist) > 0 {
			return fmt.Errorf("imagePullCredentialsVerificationPolicy and preloadedImagesVerificationAllowlist have "+
				"no effect with the feature gate %s=false; remove them or the gate", verificationGate)
		}
		return nil
	}
	if _, err := records.New("root", s.ImageVerification()); err != nil {
		return fmt.Errorf("imagePullCredentialsVerificationPolicy: %w", err)
	}
	return nil
}
