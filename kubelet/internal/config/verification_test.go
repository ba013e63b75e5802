package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/node/images/records"
)

func TestVerificationOfImages(t *testing.T) {
	const runtime = "--container-runtime-endpoint=unix:///run/containerd/containerd.sock"
	for _, tc := range []struct {
		name, config string
		args         []string
		want         records.Options
		off          bool
		effective    any
	}{
		{name: "default", args: []string{runtime}, want: records.Options{Policy: records.NeverVerifyPreloadedImages}, effective: "NeverVerifyPreloadedImages"},
		{name: "embedded", args: []string{embedded}, off: true},
		{name: "gate", args: []string{runtime, "--feature-gates=KubeletEnsureSecretPulledImages=false"}, off: true},
		{
			name: "list", args: []string{runtime}, effective: "NeverVerifyAllowlistedImages",
			config: "imagePullCredentialsVerificationPolicy: " +
				"NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [reg.example/*]\n",
			want: records.Options{Policy: records.NeverVerifyAllowlistedImages, Allowlist: []string{"reg.example/*"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := parsed(t, header+tc.config, tc.args...)
			require.NoError(t, err)
			assert.Equal(t, !tc.off, s.VerifiesImages())
			assert.Equal(t, tc.want, s.ImageVerification())
			fields, err := s.Effective(Detected{})
			require.NoError(t, err)
			assert.Equal(t, tc.effective, fields["imagePullCredentialsVerificationPolicy"])
			assert.Empty(t, s.Warnings)
		})
	}
}
