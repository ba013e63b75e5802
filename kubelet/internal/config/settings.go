package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// SocketName is the name of the agent's socket in its root directory. Commands such as
// minikubelet pods connect to it.
const SocketName = "agent.sock"

// Settings are the contents of the command line and of the configuration file.
type Settings struct {
	KubeletConfiguration
	Cluster
	Server

	ConfigFile  string
	ConfigDir   string
	ObjectsPath string
	// StaticPodUIDs is the version of the kubelet whose UIDs static pods get; "" for that which is installed.
	StaticPodUIDs string
	LogLinksDir   string
	AllowNoPods   bool
	DrainOnTerm   bool
	KeepImages    []string
	// ResetCPUs drops the assignments of CPUs that do not go with the policy or the machine.
	ResetCPUs bool
	// DevicePluginsDir is the directory of the sockets of device plugins, and of the checkpoint of devices; "" for
	// none.
	DevicePluginsDir string
	// EarlierDevicePluginsDir is where earlier versions of the agent had them; "" if it is the same.
	EarlierDevicePluginsDir string
	// FailWithoutDevicePlugin fails pods whose devices have no plugin.
	FailWithoutDevicePlugin bool
	CheckpointDir           string
	CheckpointKey           string
	RootDir                 string
	HostnameOverride        string
	NodeIP                  string
	Verbosity               int
	Version                 versionFlag
	Show                    string
	MaxDead, MaxDeadPerName int32
	MinContainerTTL         time.Duration
	RunOnceTimeout          time.Duration
	// Embedded means that containers are those of the embedded runtime, see resolveRuntime. ContainerRuntimeEndpoint is
	// empty then.
	Embedded bool
	// RuntimeCgroups is the cgroup of the container runtime, for statistics (--runtime-cgroups).
	RuntimeCgroups string
	// ImageCredentialProviderConfig and ImageCredentialProviderBinDir are the paths of the credential provider plugins,
	// see CredentialProviders.
	ImageCredentialProviderConfig, ImageCredentialProviderBinDir string
	// ResetMemoryState replaces a state of the memory manager that cannot be used (--reset-memory-manager-state).
	ResetMemoryState bool
	// FlagValues are the values of all flags that have an effect.
	FlagValues map[string]string
	// Given are the settings that were given: those of the files, and then the flags.
	Given []Given
	// program is the program that has the settings.
	program Program
	// Warnings name what was given and has no effect, or less than in kubelet.
	Warnings []string
}

// Parse reads the flags and the configuration file that they name. A flag wins over the
// field of the file. The error wraps [pflag.ErrHelp] if the flags request help.
func (p Program) Parse(args []string) (*Settings, error) {
	s := &Settings{program: p}
	defaults(&s.KubeletConfiguration)
	fs := s.flags()
	if err := fs.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return nil, err
	} else if err != nil {
		return nil, &UsageError{p.flagError(err, fs, args)}
	}
	var fields []string // of the files
	if p.Configuration != nil || s.ConfigFile != "" || s.ConfigDir != "" {
		// The files first, then the flags over them.
		fromFile := &Settings{program: p}
		var err error
		fromFile.Given, fields, err = loadAll(p.Configuration, s.ConfigFile, s.ConfigDir,
			&fromFile.KubeletConfiguration)
		if err != nil {
			return nil, err
		}
		defaults(&fromFile.KubeletConfiguration)
		confine := *fromFile.SeccompDefault
		s, fs = fromFile, fromFile.flags()
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		*s.SeccompDefault = *s.SeccompDefault || confine // as kubelet, and the safer of both
	}
	if extra := fs.Args(); len(extra) > 0 {
		return nil, &UsageError{fmt.Errorf("unexpected argument %q; %s help lists the commands", extra[0], p)}
	}
	s.Given = append(s.Given, givenFlags(fs)...)
	s.resolveRuntime(fs)
	s.warnGiven()
	s.warn()
	s.warnGates()
	s.warnTracing()
	s.warnEviction()
	s.warnMemory()
	s.warnCluster(fs, fields)
	s.warnMachine(fs, fields)
	s.resolveServer(fs, fields)
	s.FlagValues = flagValues(fs)
	if v := int(s.Logging.Verbosity); !fs.Changed("v") {
		s.Verbosity = v
	}
	s.refusals()
	s.enforcement()
	s.verification()
	def(&s.RootDir, p.defaultRootDir(!s.OnMachine()))
	def(&s.PodLogsDir, defaultPodLogsDir(os.Geteuid(), s.RootDir, !s.OnMachine()))
	if !fs.Changed(checkpointDirFlag) && s.RootDir != "" {
		s.CheckpointDir = filepath.Join(s.RootDir, "podcheckpoint")
	}
	if !fs.Changed(logLinksDirFlag) && os.Geteuid() == 0 && s.OnMachine() {
		s.LogLinksDir = "/var/log/containers" // as kubelet, wherever the logs are
	}
	s.kubeletPaths(os.Geteuid(), fs.Changed(devicePluginsDirFlag))
	if err := s.absolute(); err != nil {
		return nil, err
	}
	return s, s.validate()
}

// OnMachine reports whether containers are those of a container runtime of this machine, as those of a kubelet: with
// cgroups, CPUs and memory of the machine, and logs in kubelet's directories.
func (s *Settings) OnMachine() bool { return !s.Embedded && !s.program.OwnRuntime }

// Has reports whether one of the settings is given, see [Given].Name.
func (s *Settings) Has(names ...string) bool {
	return slices.ContainsFunc(s.Given, func(g Given) bool { return slices.Contains(names, g.Name) })
}

// Program returns the program that has the settings.
func (s *Settings) Program() Program { return s.program }

// warn adds a warning for what has no effect with the runtime that was given.
func (s *Settings) warn() {
	s.warnCgroups()
	s.warnTopology()
	s.warnProviders()
}

// defaults fills in kubelet's defaults for the fields that are implemented.
func defaults(c *KubeletConfiguration) {
	def(&c.SyncFrequency.Duration, time.Minute)
	def(&c.Logging.Format, formatText)
	def(&c.FileCheckFrequency.Duration, 20*time.Second)
	def(&c.HTTPCheckFrequency.Duration, 20*time.Second)
	def(&c.RuntimeRequestTimeout.Duration, 2*time.Minute)
	def(&c.MaxPods, 110)
	def(&c.ImageGCHighThresholdPercent, ptr.To[int32](85))
	def(&c.ImageGCLowThresholdPercent, ptr.To[int32](80))
	def(&c.ImageMinimumGCAge.Duration, 2*time.Minute)
	// The default of kubelet is one pull at a time. Here pulls run side by side, at most
	// MaxParallelImagePulls of them.
	def(&c.SerializeImagePulls, ptr.To(false))
	def(&c.RegistryPullQPS, ptr.To[int32](5))
	def(&c.RegistryBurst, 10)
	def(&c.SeccompDefault, ptr.To(false))
	def(&c.CPUCFSQuota, ptr.To(true))
	def(&c.CPUCFSQuotaPeriod, &metav1.Duration{Duration: defaultCPUPeriod})
	def(&c.CrashLoopBackOff.MaxContainerRestartPeriod, &metav1.Duration{Duration: 300 * time.Second})
	cgroupDefaults(c)
	topologyDefaults(c)
	machineDefaults(c)
	logDefaults(c)
	serverDefaults(c)
	clusterDefaults(c)
	evictionDefaults(c)
	def(&c.MemoryManagerPolicy, noMemoryPolicy)
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// absolute makes the paths of flags absolute: the path of a manifest is part of the
// identity of its pod.
func (s *Settings) absolute() error {
	for _, p := range append([]*string{&s.RootDir, &s.StaticPodPath, &s.ObjectsPath, &s.PodLogsDir, &s.LogLinksDir,
		&s.DevicePluginsDir, &s.EarlierDevicePluginsDir,
		&s.CheckpointDir, &s.CheckpointKey,
		&s.ImageCredentialProviderConfig, &s.ImageCredentialProviderBinDir}, s.clusterPaths()...) {
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

// NodeName returns the name that was given, else the name of the machine, in lower case.
func (s *Settings) NodeName() (string, error) {
	name := s.HostnameOverride
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("the machine has no name for the node: %w; give one with --hostname-override", err)
		}
	}
	return strings.ToLower(strings.TrimSpace(name)), nil
}
