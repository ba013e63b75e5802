package config

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
)

const (
	checkpointDirFlag = "checkpoint-dir"
	logLinksDirFlag   = "log-links-dir"

	devicePluginsDirFlag = "device-plugins-dir"
)

// Flags returns the flags of the agent with their defaults.
func (p Program) Flags() *pflag.FlagSet {
	s := &Settings{program: p}
	if p.Configuration != nil {
		_, _, _ = loadAll(p.Configuration, "", "", &s.KubeletConfiguration) // Parse returns the error
	}
	defaults(&s.KubeletConfiguration)
	return s.flags()
}

// flags binds kubelet's flags to the settings. Flags that are understood but not
// implemented are accepted; see warn.
func (s *Settings) flags() *pflag.FlagSet {
	fs := pflag.NewFlagSet(s.program.String(), pflag.ContinueOnError)
	fs.SortFlags = true
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc) // --max_pods, as in kubelet
	fs.Usage = func() {}                              // the caller prints it
	fs.StringVar(&s.ConfigFile, "config", "", "KubeletConfiguration (kubelet.config.k8s.io/v1beta1) to read; flags "+
		"win over it")
	fs.StringVar(&s.ConfigDir, "config-dir", "", "directory of files *.conf, each a KubeletConfiguration whose "+
		"fields replace those of --config, in the order of their paths: a JSON merge patch")
	fs.StringVar(&s.RootDir, "root-dir", "", "directory of the agent's files and of the socket for commands "+
		"(default for root: /var/lib/kubelet, with the embedded runtime "+s.program.rootDirOf(0, true)+
		"; for other users: in "+
		"their XDG state directory)")
	fs.StringVar(&s.Show, "show", terminal.Auto, "how to show the pods on stdout: auto (table on a terminal, else "+
		"lines), table, lines (one for each change of a pod), or none")
	fs.StringVar(&s.HostnameOverride, "hostname-override", "", "name of the node (default: the name of the machine)")
	fs.StringVar(&s.NodeIP, "node-ip", "", "address of the node, or two of different families, separated by a comma "+
		"(default: the address of the default route)")
	fs.Var(&s.Version, "version", "print the version and exit; raw prints all that is known of it, in kubelet's form")
	fs.Lookup("version").NoOptDefVal = "true"
	fs.Int32Var(&s.MaxDead, "maximum-dead-containers", -1,
		"dead containers that are kept on the node; less than 0 for no limit")
	fs.Int32Var(&s.MaxDeadPerName, "maximum-dead-containers-per-container", 1,
		"dead instances of each container that are kept; less than 0 for all")
	fs.DurationVar(&s.MinContainerTTL, "minimum-container-ttl-duration", 0,
		"age at which a dead container may be removed")

	fs.StringVar(&s.StaticPodPath, "pod-manifest-path", s.StaticPodPath,
		"manifest file, or directory of manifests, of the pods to run")
	fs.StringVar(&s.StaticPodUIDs, "static-pod-uids", "", "version of the kubelet whose UIDs pods of manifests get, as "+
		"in 1.36, so that they run on when that kubelet takes the node over; kubelet has no such flag (default: the "+
		"version that kubelet in PATH has, or else 1.37)")
	fs.BoolVar(&s.AllowNoPods, "allow-no-pods", false, "start although no pods are given and pods run, which the "+
		"agent then stops; kubelet has no such flag")
	fs.BoolVar(&s.DrainOnTerm, "drain-on-term", false, "on SIGTERM end all pods, in the order and the time of a "+
		"shutdown of the machine, and then the agent; kubelet has no such flag")
	fs.StringVar(&s.ObjectsPath, "objects-path", "", "directory of the secrets and config maps that pods refer to, "+
		"as manifests, best of mode 0600; kubelet has no such flag (default: they are among the manifests of the pods)")
	fs.StringVar(&s.CheckpointDir, checkpointDirFlag, "", "directory that keeps the pods, so that they run after a "+
		"reboot even while their sources cannot be reached; \"\" for none; kubelet has no such flag (default: "+
		"podcheckpoint in the root directory)")
	fs.StringVar(&s.CheckpointKey, "checkpoint-key-file", "", "file of 16, 24 or 32 bytes, or as many in base64, "+
		"that encrypts the secrets and config maps in the checkpoint directory; those that were kept without it are "+
		"removed. Pods are not encrypted, nor is the state of the embedded runtime, which has the environment of "+
		"each container, with its secrets; only their file mode protects these (default: nothing is encrypted)")
	fs.StringVar(&s.LogLinksDir, logLinksDirFlag, "", "directory of links to the logs of containers, which log "+
		"shippers read; \"\" for none; kubelet has no such flag (default for root with a container runtime: "+
		"/var/log/containers)")
	s.addRuntimeFlags(fs)
	fs.DurationVar(&s.FileCheckFrequency.Duration, "file-check-frequency", s.FileCheckFrequency.Duration,
		"time between two full reads of the manifests")
	fs.StringVar(&s.StaticPodURL, "manifest-url", s.StaticPodURL, "URL of manifests of pods to run, in addition to "+
		"those of --pod-manifest-path")
	fs.Var(cliflag.NewColonSeparatedMultimapStringString(&s.StaticPodURLHeader), "manifest-url-header",
		"comma-separated list of name:value HTTP headers for --manifest-url; the flag and the names may be repeated")
	fs.DurationVar(&s.HTTPCheckFrequency.Duration, "http-check-frequency", s.HTTPCheckFrequency.Duration,
		"time between two requests of the manifest URL")
	fs.DurationVar(&s.SyncFrequency.Duration, "sync-frequency", s.SyncFrequency.Duration,
		"time between two syncs of a pod to which nothing happens")
	fs.DurationVar(&s.RuntimeRequestTimeout.Duration, "runtime-request-timeout", s.RuntimeRequestTimeout.Duration,
		"time limit of a call to the runtime, except pulls, stops and execs")
	fs.Int32Var(&s.MaxPods, "max-pods", s.MaxPods, "pods that may run on the node; with 0 none does")
	fs.Int32Var(&s.PodsPerCore, "pods-per-core", s.PodsPerCore, "pods that may run on the node for each of its "+
		"CPUs, at most --max-pods; 0 for no limit")
	fs.Var(optionalInt{&s.PodPidsLimit}, "pod-max-pids", "processes and threads of a pod; 0 or less for no limit")
	fs.Var(cliflag.NewMapStringString(&s.SystemReserved), "system-reserved",
		"resources that pods cannot request, as in cpu=200m,memory=500Mi,ephemeral-storage=1Gi: those for the system")
	fs.Var(cliflag.NewMapStringString(&s.KubeReserved), "kube-reserved", "resources that pods cannot request, as in "+
		"cpu=100m,memory=200Mi: those for the agent and the container runtime")
	fs.StringVar(&s.ReservedSystemCPUs, "reserved-cpus", s.ReservedSystemCPUs, "CPUs that pods cannot request, as "+
		"in 0-1,4: their number replaces the CPU of --system-reserved and --kube-reserved; containers are kept off "+
		"them by the option strict-cpu-reservation of the static CPU policy")
	fs.StringSliceVar(&s.ClusterDNS, "cluster-dns", s.ClusterDNS, "name servers of pods with DNS policy ClusterFirst")
	fs.StringVar(&s.PodCIDR, "pod-cidr", s.PodCIDR, "addresses of pods, for the runtime; in a cluster they are in "+
		"the node object")
	fs.StringVar(&s.ClusterDomain, "cluster-domain", s.ClusterDomain, "domain of the cluster")
	fs.BoolVar(s.SerializeImagePulls, "serialize-image-pulls", *s.SerializeImagePulls, "pull one image at a time")
	fs.Int32Var(s.RegistryPullQPS, "registry-qps", *s.RegistryPullQPS, "pulls a second; 0 for no limit")
	fs.Int32Var(&s.RegistryBurst, "registry-burst", s.RegistryBurst,
		"pulls that may begin at once although --registry-qps is exceeded")
	fs.Int32Var(s.ImageGCHighThresholdPercent, "image-gc-high-threshold", *s.ImageGCHighThresholdPercent,
		"usage of the file system of images, in percent, from which on unused images are removed; 100 for never")
	fs.StringSliceVar(&s.KeepImages, "keep-image", nil, "name of an image that is never removed, such as one that "+
		"cannot be pulled again; all that begin so, with their registry, if it ends in \"*\"; can be repeated; "+
		"kubelet has no such flag")
	fs.StringVar(&s.DevicePluginsDir, devicePluginsDirFlag, "", "directory of the sockets of device plugins and of "+
		"the checkpoint of devices; \"\" for no device plugins; kubelet has no such flag (default for root with a "+
		"container runtime: "+kubeletDir+"/device-plugins, as with kubelet whatever --root-dir is; otherwise "+
		"device-plugins in the root directory)")
	fs.BoolVar(&s.FailWithoutDevicePlugin, "fail-without-device-plugin", false,
		"pods fail with UnexpectedAdmissionError while the plugin of their devices is missing, as with kubelet; "+
			"otherwise they wait for it; kubelet has no such flag")
	fs.Int32Var(s.ImageGCLowThresholdPercent, "image-gc-low-threshold", *s.ImageGCLowThresholdPercent,
		"usage at which the removal of images stops")
	fs.DurationVar(&s.ImageMinimumGCAge.Duration, "minimum-image-ttl-duration", s.ImageMinimumGCAge.Duration,
		"age at which an unused image may be removed")
	fs.BoolVar(&s.RunOnce, "runonce", s.RunOnce, "start the pods and exit when each is running or has ended; the "+
		"exit code is 1 if a pod failed, a manifest is broken or the time is up")
	fs.DurationVar(&s.RunOnceTimeout, "runonce-timeout", 15*time.Minute,
		"time limit of --runonce; 0 for none; kubelet has no such flag, it tried each pod ten times, about as long")
	fs.Var(gates{&s.FeatureGates}, "feature-gates", "kubelet's feature gates; EventedPLEG (default true) uses the "+
		"runtime's events, where it has them; one that cannot be obeyed is an error")
	fs.Var(optionalString{&s.ResolverConfig}, "resolv-conf",
		`resolver configuration of pods; "" for none (default "/etc/resolv.conf")`)

	fs.BoolVar(s.SeccompDefault, "seccomp-default", *s.SeccompDefault,
		"confine containers without a seccomp profile by that of the runtime")
	fs.BoolVar(s.CPUCFSQuota, "cpu-cfs-quota", *s.CPUCFSQuota, "enforce the CPU limits of containers")
	fs.DurationVar(&s.CPUCFSQuotaPeriod.Duration, "cpu-cfs-quota-period", s.CPUCFSQuotaPeriod.Duration,
		"period over which CPU limits are enforced, from 1ms to 1s")
	fs.StringSliceVar(&s.AllowedUnsafeSysctls, "allowed-unsafe-sysctls", s.AllowedUnsafeSysctls,
		"sysctls that pods may set beside the safe ones; a name may end in *")

	s.addCgroupFlags(fs)
	s.addTopologyFlags(fs)
	s.addMachineFlags(fs)
	s.addLogFlags(fs)
	s.addLoggingFlags(fs)
	s.addProviderFlags(fs)
	s.addServerFlags(fs)
	s.addClusterFlags(fs)
	s.addEvictionFlags(fs)
	s.addMemoryFlags(fs)
	for name := range strings.FieldsSeq(ignoredFlags) {
		fs.Var(ignored{}, name, "accepted for compatibility with kubelet; no effect")
		_ = fs.MarkHidden(name)
	}
	for name := range strings.FieldsSeq(ignoredSwitches) {
		fs.Var(ignored{}, name, "accepted for compatibility with kubelet; no effect")
		fs.Lookup(name).NoOptDefVal = "true"
		_ = fs.MarkHidden(name)
	}
	return fs
}

// versionFlag is the value of --version: "true", "raw", or "" if the version is not to be printed.
type versionFlag string

func (v *versionFlag) String() string { return string(*v) }

// Set implements [pflag.Value].
func (v *versionFlag) Set(text string) error {
	if text == "raw" {
		*v = versionFlag(text)
		return nil
	}
	is, err := strconv.ParseBool(text)
	if err != nil {
		return errors.New("must be true, false or raw: another version cannot be reported")
	}
	if *v = ""; is {
		*v = "true"
	}
	return nil
}

// Type implements [pflag.Value].
func (*versionFlag) Type() string { return "version" }

// optionalString is a string flag. It distinguishes a flag that was not given, for which
// *target stays nil, from an empty one.
type optionalString struct{ target **string }

func (o optionalString) String() string {
	if o.target == nil || *o.target == nil {
		return ""
	}
	return **o.target
}

// Set implements [pflag.Value].
func (o optionalString) Set(v string) error { *o.target = &v; return nil }

// Type implements [pflag.Value].
func (o optionalString) Type() string { return "string" }

// optionalInt is a flag with a number. As with optionalString, *target stays nil if it was not
// given.
type optionalInt struct{ target **int64 }

func (o optionalInt) String() string {
	if o.target == nil || *o.target == nil {
		return ""
	}
	return strconv.FormatInt(**o.target, 10)
}

// Set implements [pflag.Value].
func (o optionalInt) Set(text string) error {
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		return err
	}
	*o.target = &n
	return nil
}

// Type implements [pflag.Value].
func (o optionalInt) Type() string { return "int" }
