package config

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/kubeletkit/kubeletkit/node/images/credentials"
)

// The flags of credential provider plugins.
const (
	providerConfigFlag = "image-credential-provider-config"
	providerBinDirFlag = "image-credential-provider-bin-dir"
)

// providerTokens is the gate of service account tokens for credential provider plugins (KEP-4412).
const providerTokens = "KubeletServiceAccountTokenForCredentialProviders"

// addProviderFlags binds the flags of credential provider plugins.
func (s *Settings) addProviderFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.ImageCredentialProviderConfig, providerConfigFlag, "", "CredentialProviderConfig "+
		"(kubelet.config.k8s.io/v1) with the plugins that have credentials for images: a file, or a directory of "+
		"files *.json, *.yaml and *.yml")
	fs.StringVar(&s.ImageCredentialProviderBinDir, providerBinDirFlag, "",
		"directory of the executables of these plugins")
}

// CredentialProviders reads the configuration of the credential provider plugins, and checks that they can be executed.
// It returns false if there is no configuration.
func (s *Settings) CredentialProviders() (config credentials.Config, ok bool, err error) {
	path, binDir := s.ImageCredentialProviderConfig, s.ImageCredentialProviderBinDir
	switch {
	case path == "" && binDir == "":
		return config, false, nil
	case path == "":
		return config, false, fmt.Errorf("--%s: needs --%s", providerBinDirFlag, providerConfigFlag)
	case binDir == "":
		return config, false, fmt.Errorf("--%s: needs --%s", providerConfigFlag, providerBinDirFlag)
	}
	if config, err = credentials.ReadConfig(path); err != nil {
		return config, false, fmt.Errorf("--%s: %w", providerConfigFlag, err)
	}
	var errs []error
	for _, err := range each(config.Validate()) {
		errs = append(errs, fmt.Errorf("--%s: %s: %w", providerConfigFlag, path, err))
	}
	if len(errs) == 0 {
		for _, err := range each(config.FindPlugins(binDir)) {
			errs = append(errs, fmt.Errorf("--%s: %w", providerBinDirFlag, err))
		}
	}
	if on, given := s.FeatureGates[providerTokens]; given && !on {
		for i := range config.Providers {
			if p := &config.Providers[i]; p.TokenAttributes != nil {
				errs = append(errs,
					fmt.Errorf("--%s: %s: provider %q has tokenAttributes, and the feature gate %s is off",
						providerConfigFlag, path, p.Name, providerTokens))
			}
		}
	}
	err = errors.Join(errs...)
	return config, err == nil, err
}

// each returns the errors that were joined, so that each has its setting.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// warnProviders adds a warning for plugins without images that are pulled.
func (s *Settings) warnProviders() {
	if s.Embedded && s.ImageCredentialProviderConfig != "" {
		s.less("--"+providerConfigFlag+" has no effect with the embedded runtime, which pulls no images",
			"--"+providerConfigFlag, "--"+providerBinDirFlag)
	}
}

// validateProviders judges as kubelet does when it starts.
func (s *Settings) validateProviders() error {
	_, _, err := s.CredentialProviders()
	return err
}
