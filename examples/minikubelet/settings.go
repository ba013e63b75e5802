package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// settings is what the command line and the configuration file say.
type settings struct {
	kubeletconfig.KubeletConfiguration

	ConfigFile       string
	ObjectsPath      string
	CheckpointDir    string
	CheckpointKey    string
	RootDir          string
	HostnameOverride string
	NodeIP           string
	Verbosity        int
	Version          bool
	Show             string
	MaxDeadPerName   int32
	MinContainerTTL  time.Duration
	RunOnceTimeout   time.Duration
	// Warnings name what was given and understood but is not implemented.
	Warnings []string
}

// parse reads the flags and the configuration file that they name. Flags win.
func parse(args []string) (*settings, error) {
	s := &settings{}
	defaults(&s.KubeletConfiguration)
	fs := s.flags()
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if s.ConfigFile != "" {
		// The file first, then the flags over it.
		fromFile := &settings{}
		warnings, err := load(s.ConfigFile, &fromFile.KubeletConfiguration)
		if err != nil {
			return nil, err
		}
		defaults(&fromFile.KubeletConfiguration)
		s, fs = fromFile, fromFile.flags()
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		s.Warnings = append(s.Warnings, warnings...)
	}
	if extra := fs.Args(); len(extra) > 0 {
		return nil, fmt.Errorf("unexpected argument %q", extra[0])
	}
	fs.Visit(func(f *pflag.Flag) {
		if _, ok := f.Value.(ignored); ok {
			s.Warnings = append(s.Warnings, fmt.Sprintf("flag --%s is not implemented and has no effect", f.Name))
		}
	})
	if fs.Changed("feature-gates") {
		for _, name := range slices.Sorted(maps.Keys(s.FeatureGates)) {
			if name != eventedPLEG {
				s.Warnings = append(s.Warnings, fmt.Sprintf("feature gate %s is not implemented and has no effect", name))
			}
		}
	}
	if v := int(s.Logging.Verbosity); !fs.Changed("v") {
		s.Verbosity = v
	}
	embedded := s.ContainerRuntimeEndpoint == ""
	if !embedded && s.PodPidsLimit != nil {
		s.Warnings = append(s.Warnings, "field podPidsLimit has an effect only without a container runtime endpoint")
	}
	def(&s.RootDir, defaultRootDir(embedded))
	def(&s.PodLogsDir, defaultPodLogsDir(os.Geteuid(), s.RootDir, embedded))
	if !fs.Changed(checkpointDir) && s.RootDir != "" {
		s.CheckpointDir = filepath.Join(s.RootDir, "podcheckpoint")
	}
	if err := s.absolute(); err != nil {
		return nil, err
	}
	return s, s.validate()
}

// defaults fills in kubelet's defaults for the fields that are implemented.
func defaults(c *kubeletconfig.KubeletConfiguration) {
	def(&c.Address, "0.0.0.0")
	def(&c.HealthzBindAddress, "127.0.0.1")
	def(&c.SyncFrequency.Duration, time.Minute)
	def(&c.FileCheckFrequency.Duration, 20*time.Second)
	def(&c.HTTPCheckFrequency.Duration, 20*time.Second)
	def(&c.RuntimeRequestTimeout.Duration, 2*time.Minute)
	def(&c.MaxPods, 110)
	def(&c.HealthzPort, ptr.To[int32](10248))
	def(&c.EnableServer, ptr.To(true))
	// Kubelet pulls one image at a time unless told otherwise; here they come side by
	// side, at most MaxParallelImagePulls of them.
	def(&c.SerializeImagePulls, ptr.To(false))
	def(&c.CrashLoopBackOff.MaxContainerRestartPeriod, &metav1.Duration{Duration: 300 * time.Second})
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// load reads a KubeletConfiguration. An unknown field is an error; the warnings
// name the fields that are understood but not implemented.
func load(path string, into *kubeletconfig.KubeletConfiguration) (warnings []string, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	var fields map[string]any
	if err := yaml.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	const kind = "KubeletConfiguration"
	if version := kubeletconfig.SchemeGroupVersion.String(); fields["kind"] != kind || fields["apiVersion"] != version {
		return nil, fmt.Errorf("configuration %s: apiVersion is %v and kind is %v, want %s and %s", path, fields["apiVersion"], fields["kind"], version, kind)
	}
	// The decoder that kubelet reads it with: strict, and case counts.
	scheme := runtime.NewScheme()
	if err := kubeletconfig.AddToScheme(scheme); err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	if _, _, err := decoder.Decode(data, nil, into); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	for _, field := range notImplemented("", fields) {
		warnings = append(warnings, fmt.Sprintf("configuration %s: field %s is not implemented and has no effect", path, field))
	}
	// Paths in the file are relative to it, as kubelet reads them.
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	for _, p := range []*string{&into.StaticPodPath, &into.PodLogsDir, into.ResolverConfig} {
		if p != nil && *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
	return warnings, nil
}

// absolute makes the paths of flags absolute: that of a manifest is part of
// what its pod is known by.
func (s *settings) absolute() error {
	for _, p := range []*string{&s.RootDir, &s.StaticPodPath, &s.ObjectsPath, &s.PodLogsDir, &s.CheckpointDir, &s.CheckpointKey} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return fmt.Errorf("path %s: %w", *p, err)
		}
		*p = abs
	}
	return nil
}

func (s *settings) validate() error {
	var errs []error
	if s.RootDir == "" {
		errs = append(errs, errors.New("there is no directory for the agent's files: give one with --root-dir"))
	}
	if !slices.Contains([]string{showAuto, showTable, showLines, showNone}, s.Show) {
		errs = append(errs, fmt.Errorf("--show %q: must be auto, table, lines or none", s.Show))
	}
	if s.ReadOnlyPort < 0 || s.ReadOnlyPort > 65535 {
		errs = append(errs, fmt.Errorf("readOnlyPort %d: must be between 0 and 65535", s.ReadOnlyPort))
	}
	if p := *s.HealthzPort; p < 0 || p > 65535 {
		errs = append(errs, fmt.Errorf("healthzPort %d: must be between 0 and 65535", p))
	}
	if d := s.CrashLoopBackOff.MaxContainerRestartPeriod.Duration; d < time.Second || d > 300*time.Second {
		errs = append(errs, fmt.Errorf("crashLoopBackOff.maxContainerRestartPeriod %s: must be between 1s and 300s", d))
	}
	for field, d := range map[string]time.Duration{
		"syncFrequency": s.SyncFrequency.Duration, "fileCheckFrequency": s.FileCheckFrequency.Duration,
		"httpCheckFrequency": s.HTTPCheckFrequency.Duration, "runtimeRequestTimeout": s.RuntimeRequestTimeout.Duration,
	} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("%s %s: must be above 0", field, d))
		}
	}
	if n := s.MaxParallelImagePulls; n != nil && (*n < 1 || *n > 1 && *s.SerializeImagePulls) {
		errs = append(errs, fmt.Errorf("maxParallelImagePulls %d: must be at least 1, and no more beside serializeImagePulls", *n))
	}
	for _, dns := range s.ClusterDNS {
		if net.ParseIP(dns) == nil {
			errs = append(errs, fmt.Errorf("clusterDNS %q: not an IP address", dns))
		}
	}
	if s.MaxPods < 0 {
		errs = append(errs, fmt.Errorf("maxPods %d: must not be negative", s.MaxPods))
	}
	if _, err := s.reserved(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// reserved adds up what is reserved for the system and the agent.
func (s *settings) reserved() (v1.ResourceList, error) {
	sum := v1.ResourceList{}
	for field, reserved := range map[string]map[string]string{"systemReserved": s.SystemReserved, "kubeReserved": s.KubeReserved} {
		for name, text := range reserved {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("%s.%s %q: %w", field, name, text, err)
			}
			if q.Sign() < 0 {
				return nil, fmt.Errorf("%s.%s %q: must not be negative", field, name, text)
			}
			total := sum[v1.ResourceName(name)]
			total.Add(q)
			sum[v1.ResourceName(name)] = total
		}
	}
	return sum, nil
}

// nodeName is the name that was given, else the machine's, in lower case.
func (s *settings) nodeName() (string, error) {
	name := s.HostnameOverride
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("learning the node's name: %w; give it with --hostname-override", err)
		}
	}
	return strings.ToLower(strings.TrimSpace(name)), nil
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "minikubelet (unknown version)"
	}
	return "minikubelet " + info.Main.Version + " " + info.GoVersion
}
