package credentials

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kubelet/config/v1"
	providerv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// Config is the configuration of credential provider plugins.
type Config struct {
	// Providers are the plugins, in the order in which their credentials are tried.
	Providers []configv1.CredentialProvider
	// Hash identifies the content of the files, as the label of kubelet's metric
	// kubelet_credential_provider_config_info: "sha256:…".
	Hash string
}

const (
	configKind = "CredentialProviderConfig"
	// maxConfig is the limit for a file of the configuration, in bytes.
	maxConfig = 1 << 20
)

// ReadConfig reads a CredentialProviderConfig from a file in YAML or JSON, or from all files of a directory whose names
// end with ".json", ".yaml" or ".yml", in the order of their names. Subdirectories are not read. The fields are strict.
// The configuration is not validated, see [Config.Validate].
func ReadConfig(path string) (Config, error) {
	r := &safefile.Reader{}
	files, err := configFiles(r, path)
	if err != nil {
		return Config{}, err
	}
	var merged Config
	hash := sha256.New()
	names := map[string]string{}
	for _, file := range files {
		data, err := r.Read(file, maxConfig)
		if err != nil {
			return Config{}, err
		}
		_ = binary.Write(hash, binary.BigEndian, uint64(len(data))) // a hash does not fail
		_, _ = hash.Write(data)
		providers, err := decodeConfig(data)
		if err != nil {
			return Config{}, fmt.Errorf("%s: %w", file, err)
		}
		for i := range providers {
			name := providers[i].Name
			if other, again := names[name]; again {
				return Config{}, fmt.Errorf("%s: duplicate provider name %q, which is also in %s", file, name, other)
			}
			names[name] = file
		}
		merged.Providers = append(merged.Providers, providers...)
	}
	merged.Hash = fmt.Sprintf("sha256:%x", hash.Sum(nil))
	return merged, nil
}

// configFiles returns the files of a configuration.
func configFiles(r *safefile.Reader, path string) ([]string, error) {
	info, err := safefile.Do(r, path, func() (fs.FileInfo, error) { return os.Stat(path) })
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := safefile.Do(r, path, func() ([]fs.DirEntry, error) { return os.ReadDir(path) }) // sorted
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no file ends with .json, .yaml or .yml", path)
	}
	return files, nil
}

// decodeConfig decodes one file.
func decodeConfig(data []byte) ([]configv1.CredentialProvider, error) {
	data, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, err
	}
	var meta metav1.TypeMeta
	if err := json.UnmarshalCaseSensitivePreserveInts(data, &meta); err != nil {
		return nil, err
	}
	group, version, _ := strings.Cut(meta.APIVersion, "/")
	if meta.Kind != configKind || group != configv1.GroupName || !slices.Contains([]string{"v1", "v1beta1", "v1alpha1"},
		version) {
		return nil, fmt.Errorf("kind %q of apiVersion %q: must be %s of %s", meta.Kind, meta.APIVersion, configKind,
			configv1.SchemeGroupVersion)
	}
	var config configv1.CredentialProviderConfig
	problems, err := json.UnmarshalStrict(data, &config)
	if err = errors.Join(append([]error{err}, problems...)...); err != nil {
		return nil, err
	}
	for i := range config.Providers {
		if config.Providers[i].TokenAttributes != nil && version != "v1" {
			return nil, fmt.Errorf("provider %q: tokenAttributes need the apiVersion %s", config.Providers[i].Name,
				configv1.SchemeGroupVersion)
		}
	}
	return config.Providers, nil
}

// apiVersions are the versions of the requests for plugins. They differ in the fields of service accounts only.
func apiVersions() []string {
	const group = providerv1.GroupName + "/"
	return []string{group + "v1", group + "v1alpha1", group + "v1beta1"}
}

// Validate returns what kubelet refuses in the configuration, joined into one error. It names the providers.
func (c Config) Validate() error {
	var errs field.ErrorList
	path := field.NewPath("providers")
	if len(c.Providers) == 0 {
		errs = append(errs, field.Required(path, "at least one provider is required"))
	}
	names := sets.New[string]()
	for i := range c.Providers {
		p := &c.Providers[i]
		at := path.Key(p.Name)
		if p.Name == "" {
			at = path.Index(i)
		}
		if names.Has(p.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
		}
		names.Insert(p.Name)
		errs = append(errs, validateProvider(at, p)...)
	}
	var joined []error
	for _, err := range errs {
		joined = append(joined, err)
	}
	return errors.Join(joined...)
}

func validateProvider(at *field.Path, p *configv1.CredentialProvider) (errs field.ErrorList) {
	name := at.Child("name")
	switch {
	case p.Name == "":
		errs = append(errs, field.Required(name, "it is the name of the executable"))
	case p.Name == "." || p.Name == "..":
		errs = append(errs, field.Invalid(name, p.Name, "must be the name of an executable"))
	case strings.ContainsAny(p.Name, "/ \x00") || strings.ContainsRune(p.Name, filepath.Separator):
		errs = append(errs, field.Invalid(name, p.Name, "must contain neither '/' nor spaces"))
	}
	if p.APIVersion == "" {
		errs = append(errs, field.Required(at.Child("apiVersion"), "it is the version of the requests for the plugin, "+
			providerv1.SchemeGroupVersion.String()))
	} else if !slices.Contains(apiVersions(), p.APIVersion) {
		errs = append(errs, field.NotSupported(at.Child("apiVersion"), p.APIVersion, apiVersions()))
	}
	images := at.Child("matchImages")
	if len(p.MatchImages) == 0 {
		errs = append(errs, field.Required(images, "at least one pattern is required"))
	}
	for i, glob := range p.MatchImages {
		if _, err := patternOf(glob); err != nil {
			errs = append(errs, field.Invalid(images.Index(i), glob, "must be a host, possibly with wildcards, a "+
				"port and a path: "+err.Error()))
		}
	}
	if d := p.DefaultCacheDuration; d == nil {
		errs = append(errs, field.Required(at.Child("defaultCacheDuration"), "0s for no cache"))
	} else if d.Duration < 0 {
		errs = append(errs, field.Invalid(at.Child("defaultCacheDuration"), d.Duration.String(),
			"must not be negative"))
	}
	if p.TokenAttributes != nil {
		errs = append(errs, validateTokens(at.Child("tokenAttributes"), p)...)
	}
	return errs
}

func validateTokens(at *field.Path, p *configv1.CredentialProvider) (errs field.ErrorList) {
	t := p.TokenAttributes
	if t.ServiceAccountTokenAudience == "" {
		errs = append(errs, field.Required(at.Child("serviceAccountTokenAudience"), ""))
	}
	required, optional := at.Child("requiredServiceAccountAnnotationKeys"),
		at.Child("optionalServiceAccountAnnotationKeys")
	if t.RequireServiceAccount == nil {
		errs = append(errs, field.Required(at.Child("requireServiceAccount"), ""))
	} else if !*t.RequireServiceAccount && len(t.RequiredServiceAccountAnnotationKeys) > 0 {
		errs = append(errs, field.Forbidden(required, "requireServiceAccount must be true if annotations are required"))
	}
	if p.APIVersion != providerv1.SchemeGroupVersion.String() {
		errs = append(errs, field.Forbidden(at, "needs the apiVersion "+providerv1.SchemeGroupVersion.String()))
	}
	errs = append(errs, validateAnnotationKeys(required, t.RequiredServiceAccountAnnotationKeys)...)
	errs = append(errs, validateAnnotationKeys(optional, t.OptionalServiceAccountAnnotationKeys)...)
	both := sets.New(t.RequiredServiceAccountAnnotationKeys...).Intersection(
		sets.New(t.OptionalServiceAccountAnnotationKeys...))
	if both.Len() > 0 {
		errs = append(errs, field.Invalid(at, strings.Join(sets.List(both), ", "), "annotation keys cannot be both "+
			"required and optional"))
	}
	types := []configv1.ServiceAccountTokenCacheType{configv1.ServiceAccountServiceAccountTokenCacheType,
		configv1.TokenServiceAccountTokenCacheType}
	if t.CacheType == "" {
		errs = append(errs, field.Required(at.Child("cacheType"), "must be ServiceAccount or Token"))
	} else if !slices.Contains(types, t.CacheType) {
		errs = append(errs, field.NotSupported(at.Child("cacheType"), t.CacheType, types))
	}
	return errs
}

func validateAnnotationKeys(at *field.Path, keys []string) (errs field.ErrorList) {
	seen := sets.New[string]()
	for i, k := range keys {
		for _, problem := range validation.IsQualifiedName(strings.ToLower(k)) { // the case does not matter
			errs = append(errs, field.Invalid(at.Index(i), k, problem))
		}
		if seen.Has(k) {
			errs = append(errs, field.Duplicate(at.Index(i), k))
		}
		seen.Insert(k)
	}
	return errs
}

// FindPlugins returns an error that names each provider whose executable is not in the directory or cannot be executed.
func (c Config) FindPlugins(binDir string) error {
	r := &safefile.Reader{}
	info, err := safefile.Do(r, binDir, func() (fs.FileInfo, error) { return os.Stat(binDir) })
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "stat", Path: binDir, Err: errors.New("not a directory")}
	}
	if err != nil {
		return fmt.Errorf("directory of credential providers: %w", err)
	}
	var errs []error
	for i := range c.Providers {
		if _, err := findPlugin(r, binDir, c.Providers[i].Name); err != nil {
			errs = append(errs, fmt.Errorf("credential provider %q: %w", c.Providers[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

// findPlugin returns the path of the executable, on Windows with its extension.
func findPlugin(r *safefile.Reader, binDir, name string) (string, error) {
	dir, err := filepath.Abs(binDir) // a path without a directory is looked up in PATH
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, name)
	path, err := safefile.Do(r, file, func() (string, error) { return exec.LookPath(file) })
	if e := (*exec.Error)(nil); errors.As(err, &e) { // its text repeats the path
		err = e.Err
	}
	if err != nil && !errors.As(err, new(*fs.PathError)) {
		err = &fs.PathError{Op: "exec", Path: file, Err: err}
	}
	return path, err
}
