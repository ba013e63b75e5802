package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// flags binds kubelet's flags to the settings. Those that are understood but not
// implemented are accepted and lead to a warning.
func (s *settings) flags() *pflag.FlagSet {
	fs := pflag.NewFlagSet("minikubelet", pflag.ContinueOnError)
	fs.SortFlags = true
	fs.StringVar(&s.ConfigFile, "config", "", "KubeletConfiguration (kubelet.config.k8s.io/v1beta1) to read; flags win over it")
	fs.Usage = func() { fmt.Fprintf(os.Stderr, "Usage of minikubelet:\n%s\n%s", fs.FlagUsages(), commandUsage) }
	fs.StringVar(&s.RootDir, "root-dir", "", "directory for the pods' files, and for the socket of commands such as minikubelet pods (default for root: /var/lib/kubelet, without a runtime endpoint /var/lib/minikubelet; for others in their XDG state directory)")
	fs.StringVar(&s.Show, "show", showAuto, "how to show the pods on stdout: auto (table on a terminal, else lines), table, lines (one for each pod that has changed), or none")
	fs.StringVar(&s.HostnameOverride, "hostname-override", "", "name of the node (default: the machine's)")
	fs.StringVar(&s.NodeIP, "node-ip", "", "address of the node, or two of different families with a comma between (default: that of the default route)")
	fs.IntVarP(&s.Verbosity, "v", "v", 0, "how much to log: 0 little, 2 each change, 4 for debugging")
	fs.BoolVar(&s.Version, "version", false, "print the version")
	fs.Int32Var(&s.MaxDeadPerName, "maximum-dead-containers-per-container", 1, "dead instances of each container that are kept")
	fs.DurationVar(&s.MinContainerTTL, "minimum-container-ttl-duration", 0, "age at which a dead container may be removed")

	fs.StringVar(&s.StaticPodPath, "pod-manifest-path", s.StaticPodPath, "manifest file, or directory of manifests, of the pods to run")
	fs.StringVar(&s.ObjectsPath, "objects-path", "", "directory of the secrets and config maps that pods refer to, as manifests best of mode 0600; kubelet has no such flag (default: they stand among the manifests of the pods)")
	fs.StringVar(&s.CheckpointDir, checkpointDir, "", "directory that keeps the pods, to run them after a reboot also while their sources cannot be reached; \"\" for none; of this agent, kubelet has no such flag (default: podcheckpoint below the root directory)")
	fs.StringVar(&s.CheckpointKey, "checkpoint-key-file", "", "file of 16, 24 or 32 bytes, or as many in base64, that encrypts the secrets and config maps in it (default: they are not encrypted)")
	fs.StringVar(&s.ContainerRuntimeEndpoint, "container-runtime-endpoint", s.ContainerRuntimeEndpoint, "CRI socket of the container runtime (default: a runtime of the agent's own, whose containers are processes of this machine)")
	fs.StringVar(&s.ImageServiceEndpoint, "image-service-endpoint", s.ImageServiceEndpoint, "CRI socket for images (default: that of the runtime)")
	fs.StringVar(&s.Address, "address", s.Address, "address that the read-only port is bound to")
	fs.Int32Var(&s.ReadOnlyPort, "read-only-port", s.ReadOnlyPort, "port of /healthz and /pods, without authentication; 0 for none")
	fs.Int32Var(s.HealthzPort, "healthz-port", *s.HealthzPort, "port of /healthz alone; 0 for none")
	fs.StringVar(&s.HealthzBindAddress, "healthz-bind-address", s.HealthzBindAddress, "address that the healthz port is bound to")
	fs.BoolVar(s.EnableServer, "enable-server", *s.EnableServer, "kubelet's switch of its authenticated port, which this agent does not have")
	fs.DurationVar(&s.FileCheckFrequency.Duration, "file-check-frequency", s.FileCheckFrequency.Duration, "time between two full looks at the manifests")
	fs.StringVar(&s.StaticPodURL, "manifest-url", s.StaticPodURL, "URL of manifests of pods to run, beside those of --pod-manifest-path")
	fs.Var(cliflag.NewColonSeparatedMultimapStringString(&s.StaticPodURLHeader), "manifest-url-header", "comma-separated list of name:value HTTP headers for --manifest-url; may be repeated, and names too")
	fs.DurationVar(&s.HTTPCheckFrequency.Duration, "http-check-frequency", s.HTTPCheckFrequency.Duration, "time between two requests of the manifest URL")
	fs.DurationVar(&s.SyncFrequency.Duration, "sync-frequency", s.SyncFrequency.Duration, "time between two looks at a pod to which nothing happens")
	fs.DurationVar(&s.RuntimeRequestTimeout.Duration, "runtime-request-timeout", s.RuntimeRequestTimeout.Duration, "time limit of a call to the runtime, but for pulls, stops and execs")
	fs.Int32Var(&s.MaxPods, "max-pods", s.MaxPods, "pods that may run on the node; 0 for no limit")
	fs.StringSliceVar(&s.ClusterDNS, "cluster-dns", s.ClusterDNS, "name servers of pods with DNS policy ClusterFirst")
	fs.StringVar(&s.ClusterDomain, "cluster-domain", s.ClusterDomain, "domain of the cluster")
	fs.BoolVar(s.SerializeImagePulls, "serialize-image-pulls", *s.SerializeImagePulls, "pull one image at a time")
	fs.BoolVar(&s.RunOnce, "runonce", s.RunOnce, "start the pods and exit when each is running or has ended; 1 if one failed, a manifest is broken or the time is up")
	fs.DurationVar(&s.RunOnceTimeout, "runonce-timeout", 15*time.Minute, "how long --runonce tries; 0 for without end; of this agent, kubelet tried each pod ten times, about as long")
	fs.Var(gates{&s.FeatureGates}, "feature-gates", "kubelet's feature gates; those with an effect: EventedPLEG (default true): learn of changes by the runtime's events, where it has them")
	resolvConf := newOptionalString(&s.ResolverConfig)
	fs.Var(resolvConf, "resolv-conf", `resolver configuration that pods get; "" for none (default "/etc/resolv.conf")`)

	for name := range strings.FieldsSeq(ignoredFlags) {
		fs.Var(ignored{}, name, "accepted for kubelet's sake; no effect")
		_ = fs.MarkHidden(name)
	}
	for name := range strings.FieldsSeq(ignoredSwitches) {
		fs.Var(ignored{}, name, "accepted for kubelet's sake; no effect")
		fs.Lookup(name).NoOptDefVal = "true"
		_ = fs.MarkHidden(name)
	}
	return fs
}

// ignored is the value of a flag that has no effect.
type ignored struct{}

func (ignored) String() string   { return "" }
func (ignored) Set(string) error { return nil }
func (ignored) Type() string     { return "ignored" }

// optionalString tells a string that was not given from an empty one.
type optionalString struct{ target **string }

func newOptionalString(target **string) optionalString { return optionalString{target} }

func (o optionalString) String() string {
	if o.target == nil || *o.target == nil {
		return ""
	}
	return **o.target
}
func (o optionalString) Set(v string) error { *o.target = &v; return nil }
func (o optionalString) Type() string       { return "string" }

// ignoredFlags are kubelet's flags (as of 1.36) that take a value and are not
// implemented here, ignoredSwitches those that need none.
const (
	ignoredFlags = `authentication-token-webhook-cache-ttl authorization-mode authorization-webhook-cache-authorized-ttl
		authorization-webhook-cache-unauthorized-ttl bootstrap-kubeconfig cert-dir cgroup-driver cgroup-root client-ca-file
		cloud-provider config-dir container-log-max-files container-log-max-size cpu-cfs-quota-period cpu-manager-policy
		cpu-manager-policy-options cpu-manager-reconcile-period enforce-node-allocatable event-burst event-qps eviction-hard
		eviction-max-pod-grace-period eviction-minimum-reclaim eviction-pressure-transition-period eviction-soft
		eviction-soft-grace-period experimental-mounter-path hairpin-mode
		image-credential-provider-bin-dir image-credential-provider-config image-gc-high-threshold image-gc-low-threshold
		kube-api-burst kube-api-content-type kube-api-qps kube-reserved kube-reserved-cgroup kubeconfig kubelet-cgroups lock-file
		log-flush-frequency logging-format max-open-files maximum-dead-containers
		memory-manager-policy minimum-image-ttl-duration node-labels node-status-max-images node-status-update-frequency
		oom-score-adj pod-cidr pod-max-pids pods-per-core port provider-id qos-reserved register-with-taints registry-burst
		registry-qps reserved-cpus reserved-memory runtime-cgroups streaming-connection-idle-timeout system-cgroups
		system-reserved system-reserved-cgroup tls-cert-file tls-cipher-suites tls-min-version tls-private-key-file
		topology-manager-policy topology-manager-policy-options topology-manager-scope vmodule volume-plugin-dir
		volume-stats-agg-period windows-priorityclass allowed-unsafe-sysctls`
	ignoredSwitches = `anonymous-auth authentication-token-webhook cgroups-per-qos contention-profiling cpu-cfs-quota
		enable-controller-attach-detach enable-debugging-handlers exit-on-lock-contention
		experimental-allocatable-ignore-eviction fail-cgroupv1 fail-swap-on kernel-memcg-notification
		local-storage-capacity-isolation make-iptables-util-chains protect-kernel-defaults register-node rotate-certificates
		rotate-server-certificates seccomp-default windows-service`
)
