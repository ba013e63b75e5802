package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func evented(want bool) func(*testing.T, *Settings) {
	return func(t *testing.T, s *Settings) {
		assert.Equal(t, want, s.Evented())
		assert.Empty(t, s.Warnings)
	}
}

// embedded requests the embedded runtime.
const embedded = "--container-runtime-endpoint=" + EmbeddedRuntime

// parsed runs parse over a configuration, unless it is "", and flags.
func parsed(t *testing.T, config string, args ...string) (*Settings, error) {
	t.Helper()
	if config != "" {
		path := filepath.Join(t.TempDir(), "kubelet.yaml")
		write(t, path, config)
		args = append([]string{"--config", path}, args...)
	}
	return program.Parse(args)
}

func TestSettings(t *testing.T) {
	for _, tc := range []struct {
		name   string
		config string
		args   []string
		check  func(t *testing.T, s *Settings)
	}{
		{"kubelet's defaults", "", nil, func(t *testing.T, s *Settings) {
			assert.Equal(t, program.defaultRootDir(true), s.RootDir)
			assert.Equal(t, defaultPodLogsDir(os.Geteuid(), s.RootDir, true), s.PodLogsDir)
			assert.Empty(t, s.ContainerRuntimeEndpoint)
			assert.Equal(t, 20*time.Second, s.FileCheckFrequency.Duration)
			assert.Equal(t, 20*time.Second, s.HTTPCheckFrequency.Duration)
			assert.Equal(t, time.Minute, s.SyncFrequency.Duration)
			assert.Equal(t, int32(110), s.MaxPods)
			assert.Equal(t, int32(10248), *s.HealthzPort)
			assert.Zero(t, s.ReadOnlyPort)
			assert.Equal(t, int32(1), s.MaxDeadPerName)
			assert.Nil(t, s.ResolverConfig)
			assert.Zero(t, s.Verbosity)
			assert.Empty(t, s.Warnings)
		}},
		{"the same with an empty configuration", header, nil, func(t *testing.T, s *Settings) {
			assert.Equal(t, int32(110), s.MaxPods)
			assert.Equal(t, int32(10248), *s.HealthzPort)
			assert.Empty(t, s.StaticPodPath)
			assert.Empty(t, s.Warnings)
		}},
		{"the file over the defaults", header + "maxPods: 7\nsyncFrequency: 5s\nhealthzPort: 0\nreadOnlyPort: 10255\nclusterDNS: [10.0.0.10]\nlogging: {verbosity: 3}\nmaxParallelImagePulls: 4\nresolvConf: \"\"\n", nil, func(t *testing.T, s *Settings) {
			assert.Equal(t, int32(7), s.MaxPods)
			assert.Equal(t, 5*time.Second, s.SyncFrequency.Duration)
			assert.Zero(t, *s.HealthzPort)
			assert.Equal(t, int32(10255), s.ReadOnlyPort)
			assert.Equal(t, []string{"10.0.0.10"}, s.ClusterDNS)
			assert.Equal(t, 3, s.Verbosity)
			assert.Equal(t, int32(4), *s.MaxParallelImagePulls)
			require.NotNil(t, s.ResolverConfig)
			assert.Empty(t, *s.ResolverConfig)
		}},
		{"flags over the file, wherever they stand", header + "maxPods: 7\nhealthzPort: 1\nclusterDNS: [10.0.0.10]\nlogging: {verbosity: 3}\nrunOnce: true\n",
			[]string{"--max-pods=9", "--healthz-port=2", "--cluster-dns=10.0.0.11,10.0.0.12", "-v", "1",
				"--runonce=false"}, func(t *testing.T, s *Settings) {
				assert.Equal(t, int32(9), s.MaxPods)
				assert.Equal(t, int32(2), *s.HealthzPort)
				assert.Equal(t, []string{"10.0.0.11", "10.0.0.12"}, s.ClusterDNS)
				assert.Equal(t, 1, s.Verbosity)
				assert.False(t, s.RunOnce)
			}},
		{"the last of a flag given twice", "", []string{"--max-pods=1", "--max-pods=2"}, func(t *testing.T, s *Settings) {
			assert.Equal(t, int32(2), s.MaxPods)
		}},
		{"a flag with underscores", "", []string{"--max_pods=3", "--fail_swap-on"}, func(t *testing.T, s *Settings) {
			assert.Equal(t, int32(3), s.MaxPods)
			assert.True(t, *s.FailSwapOn)
			assert.True(t, s.Has("--max-pods"))
		}},
		{"no pods, as in kubelet", "", []string{"--max-pods=0"}, func(t *testing.T, s *Settings) {
			assert.Zero(t, s.PodLimit(4))
		}},
		{"no pods for each core is no limit", "", []string{"--max-pods=7", "--pods-per-core=0"}, func(t *testing.T, s *Settings) {
			assert.Equal(t, 7, s.PodLimit(4))
		}},
		{"0 of the file is the default", header + "maxPods: 0\n", nil, func(t *testing.T, s *Settings) {
			assert.Equal(t, 110, s.PodLimit(400))
		}},
		{"the version", "", []string{"--version"}, printsVersion("true")},
		{"the version, raw", "", []string{"--version=raw"}, printsVersion("raw")},
		{"no version", "", []string{"--version", "--version=false"}, printsVersion("")},
		{"dead containers", "", nil, func(t *testing.T, s *Settings) { assert.Equal(t, int32(-1), s.MaxDead) }},
		{"dead containers by flag", "", []string{"--maximum-dead-containers=240"}, func(t *testing.T, s *Settings) {
			assert.Equal(t, int32(240), s.MaxDead)
			assert.Empty(t, s.Warnings)
		}},
		{"the capacity of storage is no matter of a cluster", header + "localStorageCapacityIsolation: false\n", nil, func(t *testing.T, s *Settings) {
			assert.False(t, *s.LocalStorageCapacityIsolation)
			assert.Empty(t, s.Warnings)
		}},
		{"what is periodic in kubelet", header + "cpuManagerReconcilePeriod: 5s\n", []string{"--cpu-manager-reconcile-period=5s"}, func(t *testing.T, s *Settings) {
			assert.Contains(t, s.Warnings, "flag --cpu-manager-reconcile-period is not implemented and has no effect")
			assert.Contains(t, strings.Join(s.Warnings, "\n"), "field cpuManagerReconcilePeriod is not implemented")
		}},
		{"events by default", "", nil, evented(true)},
		{"no events by flag", "", []string{"--feature-gates=EventedPLEG=false"}, evented(false)},
		{"no events by file", header + "featureGates: {EventedPLEG: false}\n", nil, evented(false)},
		{"events by flag over the file", header + "featureGates: {EventedPLEG: false}\n", []string{"--feature-gates", "EventedPLEG=true"}, evented(true)},
		{"-v 2", "", []string{"-v", "2"}, verbosity(2)},
		{"-v=2", "", []string{"-v=2"}, verbosity(2)},
		{"-v2", "", []string{"-v2"}, verbosity(2)},
		{"--v=2", "", []string{"--v=2"}, verbosity(2)},
		{"--v 2", "", []string{"--v", "2"}, verbosity(2)},
		{"-v=0 over the file", header + "logging: {verbosity: 3}\n", []string{"-v=0"}, verbosity(0)},
		{"no resolver", "", []string{"--resolv-conf="}, func(t *testing.T, s *Settings) {
			require.NotNil(t, s.ResolverConfig)
			assert.Empty(t, *s.ResolverConfig)
		}},
		{"paths of flags are relative to the working directory", "", []string{"--root-dir=root", "--pod-manifest-path=m"}, func(t *testing.T, s *Settings) {
			wd, err := os.Getwd()
			require.NoError(t, err)
			assert.Equal(t, filepath.Join(wd, "root"), s.RootDir)
			assert.Equal(t, filepath.Join(wd, "m"), s.StaticPodPath)
		}},
		{"paths of the file are relative to the file", header + "staticPodPath: m\npodLogsDir: logs\nresolvConf: r\n", nil, func(t *testing.T, s *Settings) {
			dir := filepath.Dir(s.ConfigFile)
			assert.Equal(t, filepath.Join(dir, "m"), s.StaticPodPath)
			assert.Equal(t, filepath.Join(dir, "logs"), s.PodLogsDir)
			assert.Equal(t, filepath.Join(dir, "r"), *s.ResolverConfig)
		}},
		{"a URL of manifests", header + "staticPodURL: https://host/file\nstaticPodURLHeader: {X-Token: [a, b]}\nhttpCheckFrequency: 5s\n", nil, func(t *testing.T, s *Settings) {
			assert.Equal(t, "https://host/file", s.StaticPodURL)
			assert.Equal(t, map[string][]string{"X-Token": {"a", "b"}}, s.StaticPodURLHeader)
			assert.Equal(t, 5*time.Second, s.HTTPCheckFrequency.Duration)
			assert.Empty(t, s.Warnings)
		}},
		{"a URL of manifests by flags", header + "staticPodURLHeader: {X-Token: [a, b]}\n",
			[]string{"--manifest-url=https://host/flag", "--manifest-url-header", "a:hello,b:again",
				"--manifest-url-header=b:beautiful", "--http-check-frequency=7s"}, func(t *testing.T, s *Settings) {
				assert.Equal(t, "https://host/flag", s.StaticPodURL)
				assert.Equal(t, map[string][]string{"a": {"hello"}, "b": {"again", "beautiful"}}, s.StaticPodURLHeader)
				assert.Equal(t, 7*time.Second, s.HTTPCheckFrequency.Duration)
				assert.Empty(t, s.Warnings)
			}},
		{"what has no effect is named", header + "volumePluginDir: /x\nregisterWithTaints: [{key: a, effect: NoExecute}]\nlogging: {flushFrequency: 5s, verbosity: 1}\nhairpinMode: none\n",
			[]string{"--feature-gates=DRANodeAllocatableResources=true", "--register-node=false", "--windows-service",
				"--log-text-split-stream", "--log-text-info-buffer-size=1M", "--log-json-split-stream=true",
				"--log-json-info-buffer-size=1M"}, func(t *testing.T, s *Settings) {
				all := strings.Join(s.Warnings, "\n")
				for _, name := range []string{"field volumePluginDir ", "field logging.flushFrequency ",
					"field hairpinMode ", "feature gate DRANodeAllocatableResources ",
					"--register-node, registerWithTaints: no effect without --kubeconfig", "--windows-service ",
					"--log-text-split-stream ", "--log-text-info-buffer-size ", "--log-json-split-stream ",
					"--log-json-info-buffer-size "} {
					assert.Contains(t, all, name)
				}
				assert.NotContains(t, all, "verbosity")
				assert.Len(t, s.Warnings, 10)
			}},
		{"zero values, as kubeadm writes them, request nothing", header + "cpuManagerReconcilePeriod: 0s\nmemorySwap: {}\nshutdownGracePeriod: 0s\nshutdownGracePeriodCriticalPods: 0s\nvolumeStatsAggPeriod: 0s\n" +
			"logging: {flushFrequency: 0, options: {json: {infoBufferSize: \"0\"}, text: {infoBufferSize: \"0\"}}, " +
			"verbosity: 0}\n", nil, func(t *testing.T, s *Settings) {
			assert.Empty(t, s.Warnings)
		}},
		{"limits and security", header + "seccompDefault: true\ncpuCFSQuota: false\ncpuCFSQuotaPeriod: 5ms\nsingleProcessOOMKill: true\nallowedUnsafeSysctls: [kernel.msg*]\n",
			[]string{"--container-runtime-endpoint=/run/cri.sock"}, func(t *testing.T, s *Settings) {
				assert.True(t, *s.SeccompDefault)
				assert.False(t, *s.CPUCFSQuota)
				assert.Equal(t, 5*time.Millisecond, s.CPUCFSQuotaPeriod.Duration)
				assert.True(t, *s.SingleProcessOOMKill)
				assert.Equal(t, []string{"kernel.msg*"}, s.AllowedUnsafeSysctls)
				assert.Empty(t, s.Warnings)
			}},
		{"cgroups", header + "cgroupRoot: /kubelet\ncgroupDriver: systemd\ncgroupsPerQOS: true\n", []string{"--container-runtime-endpoint=/run/cri.sock"}, func(t *testing.T, s *Settings) {
			assert.Equal(t, "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podu.slice", parentOf(t, s, ""))
			assert.Equal(t, "/kubelet/kubepods/podu", parentOf(t, s, "cgroupfs"), "the runtime wins")
			assert.Empty(t, s.Warnings)
		}},
		{"cgroups by flags", header + "cgroupRoot: /kubelet\n", []string{"--container-runtime-endpoint=/run/cri.sock", "--cgroup-root=/", "--cgroup-driver=cgroupfs", "--cgroups-per-qos"}, func(t *testing.T, s *Settings) {
			assert.Equal(t, "/kubepods/podu", parentOf(t, s, ""))
			assert.Empty(t, s.Warnings)
		}},
		{"no cgroups", header + "cgroupsPerQOS: false\n", []string{"--container-runtime-endpoint=/run/cri.sock"}, noCgroups},
		{"no cgroups by flag", header, []string{"--container-runtime-endpoint=/run/cri.sock", "--cgroups-per-qos=false"}, noCgroups},
		{"no cgroups with the embedded runtime", "", nil, noCgroups},
		{"limits and security by flags", header + "seccompDefault: false\ncpuCFSQuota: true\n",
			[]string{"--container-runtime-endpoint=/run/cri.sock", "--seccomp-default", "--cpu-cfs-quota=false",
				"--cpu-cfs-quota-period=7ms", "--allowed-unsafe-sysctls=net.core.somaxconn,kernel.sem"},
			func(t *testing.T, s *Settings) {
				assert.True(t, *s.SeccompDefault)
				assert.False(t, *s.CPUCFSQuota)
				assert.Equal(t, 7*time.Millisecond, s.CPUCFSQuotaPeriod.Duration)
				assert.Equal(t, []string{"net.core.somaxconn", "kernel.sem"}, s.AllowedUnsafeSysctls)
				assert.Empty(t, s.Warnings)
			}},
		{"reservations add up", header + "systemReserved: {cpu: 100m, memory: 1Gi}\nkubeReserved: {cpu: 50m}\n", nil, func(t *testing.T, s *Settings) {
			r, err := s.Reserved()
			require.NoError(t, err)
			assert.Equal(t, int64(150), r.Cpu().MilliValue())
			assert.Equal(t, int64(1<<30), r.Memory().Value())
		}},
		{"reserved CPUs replace the CPU of reservations", header + "systemReserved: {cpu: 100m, memory: 1Gi}\nkubeReserved: {cpu: 50m}\nreservedSystemCPUs: 0-1,4\n", nil, func(t *testing.T, s *Settings) {
			r, err := s.Reserved()
			require.NoError(t, err)
			assert.Equal(t, int64(3000), r.Cpu().MilliValue())
			assert.Equal(t, int64(1<<30), r.Memory().Value())
			require.Len(t, s.Warnings, 1)
			assert.Contains(t, s.Warnings[0], "reservedSystemCPUs 0-1,4: their number counts")
			assert.Equal(t, map[string]string{"cpu": "100m", "memory": "1Gi"}, s.SystemReserved,
				"the settings stay as they were given")
		}},
		{"reserved CPUs by flag", header + "reservedSystemCPUs: 0-1,4\n", []string{"--reserved-cpus=3", "--kube-reserved=cpu=2"}, func(t *testing.T, s *Settings) {
			r, err := s.Reserved()
			require.NoError(t, err)
			assert.Equal(t, int64(1000), r.Cpu().MilliValue())
		}},
		{"reservations and rates by flags", header + "systemReserved: {cpu: 100m}\nregistryPullQPS: 1\npodsPerCore: 3\n",
			[]string{"--system-reserved=cpu=1", "--kube-reserved=memory=1Gi,cpu=500m", "--registry-qps=0",
				"--registry-burst=3", "--pod-max-pids=-1", "--pods-per-core=2"}, func(t *testing.T, s *Settings) {
				r, err := s.Reserved()
				require.NoError(t, err)
				assert.Equal(t, int64(1500), r.Cpu().MilliValue())
				assert.Equal(t, int64(1<<30), r.Memory().Value())
				assert.Zero(t, *s.RegistryPullQPS)
				assert.Equal(t, int32(3), s.RegistryBurst)
				assert.Equal(t, int64(-1), *s.PodPidsLimit)
				assert.Equal(t, 8, s.PodLimit(4))
				assert.Equal(t, 110, s.PodLimit(64), "never more than maxPods")
				assert.Empty(t, s.Warnings)
			}},
		{"JSON", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":5}`, nil, func(t *testing.T, s *Settings) {
			assert.Equal(t, int32(5), s.MaxPods)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := parsed(t, tc.config, tc.args...)
			require.NoError(t, err)
			tc.check(t, s)
		})
	}
}

// parentOf returns the cgroup of a Guaranteed pod of the UID u.
func parentOf(t *testing.T, s *Settings, driver string) string {
	t.Helper()
	cgroups, err := s.Cgroups(func() string { return driver })
	require.NoError(t, err)
	require.NotNil(t, cgroups)
	return cgroups.Parent(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"},
		Status: v1.PodStatus{QOSClass: v1.PodQOSGuaranteed}})
}

func noCgroups(t *testing.T, s *Settings) {
	cgroups, err := s.Cgroups(func() string { return "" })
	require.NoError(t, err)
	assert.Nil(t, cgroups)
	assert.Empty(t, s.Warnings)
}

func printsVersion(want versionFlag) func(*testing.T, *Settings) {
	return func(t *testing.T, s *Settings) { assert.Equal(t, want, s.Version) }
}

func verbosity(want int) func(*testing.T, *Settings) {
	return func(t *testing.T, s *Settings) { assert.Equal(t, want, s.Verbosity) }
}

func TestReservedCPUsAreOnline(t *testing.T) {
	for online, want := range map[string]string{
		"0-7\n":   "",
		"0-1,4\n": "",
		"0-1,5\n": `reservedSystemCPUs "0-1,4": not online: 4; the machine has 0-1,5`,
		"0\n":     `reservedSystemCPUs "0-1,4": not online: 1,4; the machine has 0`,
		"all\n":   "the CPUs that are online",
	} {
		s, err := parsed(t, "", "--reserved-cpus=0-1,4")
		require.NoError(t, err)
		err = s.CheckReservedCPUs(online)
		if want == "" {
			require.NoError(t, err, online)
		} else {
			require.ErrorContains(t, err, want)
		}
		s.ReservedSystemCPUs = ""
		require.NoError(t, s.CheckReservedCPUs(online), online)
	}
}

func TestSettingsThatAreWrong(t *testing.T) {
	for _, tc := range []struct {
		name   string
		config string
		args   []string
		want   []string // parts of the error
	}{
		{"unknown flag", "", []string{"--no-such-flag"}, []string{"unknown flag: --no-such-flag; minikubelet help run lists the flags"}},
		{"one dash", "", []string{"-version"}, []string{"there is no flag -version; did you mean --version?"}},
		{"one dash and a value", "", []string{"--v=2", "-root-dir=/x"}, []string{"did you mean --root-dir?"}},
		{"argument", "", []string{"manifests"}, []string{`unexpected argument "manifests"`}},
		{"wrong type in a flag", "", []string{"--max-pods=many"}, []string{"--max-pods", `"many"`}},
		{"a flag without its value", "", []string{"--root-dir"}, []string{"flag needs an argument: --root-dir"}},
		{"no file", "", []string{"--config=/no/such/file"}, []string{"reading the configuration", "/no/such/file"}},
		{"wrong type in a field", header + "maxPods: many\n", nil, []string{"kubelet.yaml", "maxPods", "int32"}},
		{"no duration", header + "syncFrequency: soon\n", nil, []string{"kubelet.yaml: field syncFrequency: ", "soon"}},
		{"another version", "", []string{"--version=v1.2.3"}, []string{"--version", "must be true, false or raw"}},
		{"no duration in a flag", "", []string{"--sync-frequency=soon"}, []string{"--sync-frequency", "soon"}},
		{"another kind", "apiVersion: v1\nkind: Pod\n", nil, []string{"want kubelet.config.k8s.io/v1beta1 and KubeletConfiguration"}},
		{"no kind", "maxPods: 3\n", nil, []string{"kubelet.yaml", "apiVersion is missing and kind is missing, want kubelet.config.k8s.io/v1beta1"}},
		{"an empty file", " ", nil, []string{"kubelet.yaml", "kind is missing"}},
		{"name of the node", "", []string{"--hostname-override=my node"}, []string{`the name of the node, "my node"`, "--hostname-override"}},
		{"no YAML", "{", nil, []string{"kubelet.yaml"}},
		{"several at once", header + "readOnlyPort: 70000\nmaxPods: -1\nsyncFrequency: -1s\nclusterDNS: [dns]\nsystemReserved: {cpu: lots}\ncrashLoopBackOff: {maxContainerRestartPeriod: 1h}\n",
			[]string{"--healthz-port=-1"}, []string{"readOnlyPort 70000", "healthzPort -1", "maxPods -1",
				"syncFrequency -1s", `clusterDNS "dns"`, "systemReserved.cpu", "maxContainerRestartPeriod 1h0m0s"}},
		{"negative rates", header + "podsPerCore: -1\nregistryPullQPS: -1\n", nil, []string{"podsPerCore -1", "registryPullQPS -1"}},
		{"reserved CPUs", header + "reservedSystemCPUs: 0-x\n", nil, []string{`reservedSystemCPUs "0-x"`}},
		{"reserved CPUs beyond any machine", "", []string{"--reserved-cpus=0-99999999999"}, []string{"reservedSystemCPUs", "there is no CPU 99999999999"}},
		{"negative reservation", header + "kubeReserved: {memory: -1Gi}\n", nil, []string{"kubeReserved.memory", "negative"}},
		{"thresholds of images", header + "imageGCHighThresholdPercent: 101\nimageGCLowThresholdPercent: -1\n", nil, []string{"imageGCHighThresholdPercent 101", "imageGCLowThresholdPercent -1"}},
		{"thresholds of images in the wrong order", header + "imageGCHighThresholdPercent: 80\n", nil, []string{"imageGCLowThresholdPercent 80: must be less than imageGCHighThresholdPercent 80"}},
		{"threshold of images by flag", "", []string{"--image-gc-high-threshold=0"}, []string{"must be less than imageGCHighThresholdPercent 0"}},
		{"ages of images", header + "imageMinimumGCAge: -1s\nimageMaximumGCAge: -1s\n", nil, []string{"imageMinimumGCAge -1s", "imageMaximumGCAge -1s"}},
		{"maximum age of images", header + "imageMaximumGCAge: 2m\n", nil, []string{"imageMaximumGCAge 2m0s: must be greater than imageMinimumGCAge 2m0s"}},
		{"seccomp without a profile", "", []string{"--seccomp-default", embedded}, []string{"seccompDefault", "--container-runtime-endpoint"}},
		{"cgroup driver", header + "cgroupDriver: cgroupv2\n", nil, []string{"cgroupDriver", "cgroupv2"}},
		{"cgroup root", "", []string{"--cgroup-root=/kubelet.slice"}, []string{"cgroupRoot", "/kubelet.slice"}},
		{"sysctl of the node", header + "allowedUnsafeSysctls: [vm.swappiness, kernel.sem]\n", nil, []string{"allowedUnsafeSysctls", `"vm.swappiness"`}},
		{"credentials of images", header + "imagePullCredentialsVerificationPolicy: Sometimes\n", nil, []string{"imagePullCredentialsVerificationPolicy", `unknown policy "Sometimes"`}},
		{"images without verification", header + "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [a*]\n", nil, []string{`"a*" in the allowlist`}},
		{"a list without its policy", header + "preloadedImagesVerificationAllowlist: [a]\n", nil, []string{"NeverVerifyPreloadedImages has no allowlist"}},
		{"a policy without its gate", header + "imagePullCredentialsVerificationPolicy: AlwaysVerify\nfeatureGates: {KubeletEnsureSecretPulledImages: false}\n", nil, []string{"no effect with the feature gate KubeletEnsureSecretPulledImages=false"}},
		{"period of CPU limits", header + "cpuCFSQuotaPeriod: 2s\n", nil, []string{"cpuCFSQuotaPeriod 2s: must be between 1ms and 1s"}},
		{"parallel pulls in series", header + "serializeImagePulls: true\nmaxParallelImagePulls: 3\n", nil, []string{"maxParallelImagePulls 3"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parsed(t, tc.config, tc.args...)
			require.Error(t, err)
			for _, part := range tc.want {
				assert.ErrorContains(t, err, part)
			}
		})
	}
}

// Files in a directory replace fields of the file, and flags those of all files.
func TestDirectoryOfConfigurations(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "main.yaml"), header+"maxPods: 1\nseccompDefault: false\nclusterDNS: [10.0.0.1, "+
		"10.0.0.2]\nsystemReserved: {cpu: 100m}\nsyncFrequency: 7s\n")
	parts := filepath.Join(dir, "parts")
	require.NoError(t, os.MkdirAll(filepath.Join(parts, "sub"), 0o700))
	write(t, filepath.Join(parts, "10-a.conf"), header+"maxPods: 2\nseccompDefault: true\nstaticPodPath: m\n")
	write(t, filepath.Join(parts, "20-b.conf"), header+"maxPods: 3\nclusterDNS: [10.0.0.3]\nsystemReserved: "+
		"{memory: 1Gi}\nvolumePluginDir: /x\n")
	write(t, filepath.Join(parts, "30-c.yaml"), "this is not read")
	write(t, filepath.Join(parts, "sub", "d.conf"), header+"registryBurst: 4\n")
	s, err := program.Parse([]string{"--config", filepath.Join(dir, "main.yaml"), "--config-dir", parts,
		"--container-runtime-endpoint=/run/cri.sock", "--registry-burst=5"})
	require.NoError(t, err)
	assert.Equal(t, int32(3), s.MaxPods)
	assert.True(t, *s.SeccompDefault)
	assert.Equal(t, []string{"10.0.0.3"}, s.ClusterDNS)
	assert.Equal(t, map[string]string{"cpu": "100m", "memory": "1Gi"}, s.SystemReserved)
	assert.Equal(t, 7*time.Second, s.SyncFrequency.Duration)
	wd, err := os.Getwd()
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(wd, "m"), s.StaticPodPath, "relative to the working directory, as in kubelet")
	assert.Equal(t, int32(5), s.RegistryBurst)
	require.Len(t, s.Warnings, 1)
	assert.Contains(t, s.Warnings[0], "field volumePluginDir ")

	s, err = program.Parse([]string{"--config-dir", parts, "--container-runtime-endpoint=/run/cri.sock"})
	require.NoError(t, err)
	assert.Equal(t, int32(4), s.RegistryBurst, "without a file")

	write(t, filepath.Join(parts, "15.conf"), "maxPods: 3\n")
	_, err = program.Parse([]string{"--config-dir", parts})
	require.ErrorContains(t, err, "15.conf")
	_, err = program.Parse([]string{"--config-dir", filepath.Join(dir, "none")})
	require.ErrorContains(t, err, "none")
}

// A field that is unknown, or given more than once, is a warning.
func TestUnknownAndRepeatedFields(t *testing.T) {
	for _, tc := range []struct{ name, config, field, less string }{
		{"unknown", "maxPodz: 3\n", "maxPodz", Unknown},
		{"unknown and empty", "maxPodz: 0\n", "maxPodz", Unknown},
		{"nested", "logging: {verbosty: 3}\n", "logging.verbosty", Unknown},
		{"in a list", "registerWithTaints: [{key: a, effect: NoSchedule, efect: x}]\n", "registerWithTaints[0].efect", Unknown},
		{"in another case", "StaticPodPath: /x\n", "StaticPodPath", Unknown},
		{"twice", "maxPods: 3\nmaxPods: 4\nmaxPods: 9\n", "maxPods", Repeated},
		{"nested twice", "logging: {verbosity: 3, verbosity: 9}\n", "logging.verbosity", Repeated},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "10.conf")
			write(t, path, header+tc.config)
			for _, flag := range []string{"--config=" + path, "--config-dir=" + filepath.Dir(path)} {
				s, err := program.Parse([]string{flag, "--kubeconfig=/k", "--read-only-port=0",
					"--anonymous-auth=false", "--authorization-mode=Webhook"})
				require.NoError(t, err)
				assert.Equal(t, []string{"configuration " + path + ": field " + tc.field + " " + tc.less}, s.Warnings)
				assert.Contains(t, s.Given, Given{Name: tc.field, File: path, Less: tc.less})
				assert.Empty(t, s.StaticPodPath)
				if tc.less == Repeated {
					assert.Equal(t, 9, max(int(s.MaxPods)%110, s.Verbosity), "the last value counts")
				}
			}
		})
	}
}

func TestHelpIsNoError(t *testing.T) {
	_, err := program.Parse([]string{"--help"})
	require.ErrorIs(t, err, pflag.ErrHelp)
}

func TestNodeName(t *testing.T) {
	s, err := program.Parse([]string{"--hostname-override= Edge-7 "})
	require.NoError(t, err)
	node, err := s.NodeName()
	require.NoError(t, err)
	assert.Equal(t, "edge-7", node)
}

const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func TestUsage(t *testing.T) {
	usage := program.Flags().FlagUsages()
	for _, name := range []string{"--config", "--pod-manifest-path", "--container-runtime-endpoint",
		"--runonce", "--v"} {
		assert.Contains(t, usage, name)
	}
	assert.NotContains(t, usage, "windows-service", "what has no effect is not advertised")
	assert.Less(t, strings.Count(usage, "\n"), 140)
}
