package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/prober"
)

// Each gate is on or off as kubelet has it, or it is an error or a warning: it is never ignored if it acts in a
// kubelet.
func TestFeatureGates(t *testing.T) {
	for _, tc := range []struct{ given, warning, err string }{
		{given: "EventedPLEG=false"},
		{given: "Evented=true", err: "feature gate Evented: kubelet 1.37 has no such gate; remove it"},
		{given: "#=true", err: "no such gate"},
		{given: "NodeSwap=true"},
		{given: "NodeSwap=false", err: "feature gate NodeSwap: kubelet 1.37 has it locked to true; remove it"},
		{given: "GitRepoVolumeDriver=true", err: "locked to false"},
		{given: "ContainerCheckpoint=true"},
		{given: "ContainerCheckpoint=false", err: "feature gate ContainerCheckpoint: the feature cannot be switched off here; remove it, or run a kubelet"},
		{given: "CRIListStreaming=true"},
		{given: "CRIListStreaming=false", warning: "feature gate CRIListStreaming: the feature is always on here"},
		{given: "GracefulNodeShutdown=false"},
		{given: "CustomCPUCFSQuotaPeriod=false"},
		{given: "PodLevelResources=false"},
		{given: "PodLevelResources=false,InPlacePodLevelResourcesVerticalScaling=false"},
		{given: "PodLevelResources=false,PodLevelResourcesFixDefaulting=false,PodLevelResourcesFixKubeletQOSClass=false"},
		{given: "PodLevelResourcesFixKubeletQOSClass=false",
			err: "cannot be switched off here while PodLevelResources is on"},
		{given: "InPlacePodLevelResourcesVerticalScaling=false", err: "cannot be switched off here while PodLevelResources is on"},
		{given: "GracefulNodeShutdown=true"},
		{given: "InPlacePodVerticalScalingSchedulerPreemption=true"},
		{given: "PodLevelResourceManagers=true"},
		{given: "PodLevelResourceManagers=true,PodLevelResources=false,InPlacePodLevelResourcesVerticalScaling=false", err: "feature gate PodLevelResourceManagers: needs the feature gate PodLevelResources"},
		{given: "DRANodeAllocatableResources=true", warning: "feature gate DRANodeAllocatableResources is not implemented and has no effect"},
		{given: "RecoverVolumeExpansionFailure=true"},
		{given: "RecoverVolumeExpansionFailure=false", err: "locked to true"},
		{given: "WatchListClient=true"},
		{given: "WatchListClient=false", err: "set the environment variable KUBE_FEATURE_WatchListClient=false"},
		{given: "JobManagedBy=true,HPAScaleToZero=true,DetectCacheInconsistency=false"}, // of other components
		{given: "AllAlpha=false,AllBeta=true", warning: "feature gate AllBeta has no effect here: name the gates that are to be on"},
		{given: "AllBeta=false", err: "feature gate AllBeta: "},
	} {
		for where, args := range map[string][2]string{
			"flag": {"", "--feature-gates=" + tc.given},
			"file": {header + "featureGates: {\"" + strings.ReplaceAll(strings.ReplaceAll(tc.given, "=", "\": "), ",", ", \"") + "}\n", "--max-pods=1"},
		} {
			t.Run(tc.given+" in a "+where, func(t *testing.T) {
				s, err := parsed(t, args[0], args[1])
				if tc.err != "" {
					require.ErrorContains(t, err, tc.err)
					return
				}
				require.NoError(t, err)
				var want []string
				if tc.warning != "" {
					want = []string{tc.warning}
				}
				assert.Equal(t, want, s.Warnings)
			})
		}
	}
}

// Gates whose feature is elsewhere. The value of each is read.
func TestGatesOfFeatures(t *testing.T) {
	for name, on := range map[string]func(s *Settings) bool{
		"AllowDNSOnlyNodeCSR":                (*Settings).DNSOnlyCertificates,
		"KubeletAllocatedPodsEndpoint":       (*Settings).AllocatedPods,
		"PodsAPI":                            (*Settings).PodsAPI,
		"ReduceDefaultCrashLoopBackOffDecay": func(s *Settings) bool { return s.FirstBackoff() == time.Second },
		"TaintTolerationComparisonOperators": (*Settings).CompareTaints,
		"KubeletInUserNamespace":             (*Settings).InUserNamespace,
		"PodLevelResourceManagers":           (*Settings).ManagesWholePods,
		"DRAOptionalNodeOperations":          (*Settings).SkipsDriverCalls,
		"KubeletRegistrationGetOnExistsOnly": func(s *Settings) bool {
			opts, err := s.NodeOptions()
			require.NoError(t, err)
			return opts.GetOnExistsOnly
		},
	} {
		g, _ := findGate(name)
		for given, want := range map[string]bool{name + "=true": true, name + "=false": false, "JobManagedBy=true": g.on} {
			s, err := parsed(t, header, "--feature-gates="+given)
			require.NoError(t, err)
			assert.Equal(t, want, on(s), given)
			assert.Empty(t, s.Warnings)
		}
	}
}

// Sysctls of all pods need their gate, and are checked.
func TestDefaultPodSysctls(t *testing.T) {
	const gate = "featureGates: {DefaultPodSysctls: true}\ndefaultPodSysctls: "
	s, err := parsed(t, header+gate+"{net/core/somaxconn: '1024', kernel.sem: '1'}\n", endpointFlag)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"net/core/somaxconn": "1024", "kernel.sem": "1"}, s.DefaultPodSysctls)
	assert.Empty(t, s.Warnings)
	_, err = parsed(t, header+gate+"{kernel.sem: '1'}\n", embedded)
	require.ErrorContains(t, err, "only pods of a container runtime")
	for given, want := range map[string]string{
		"defaultPodSysctls: {kernel.sem: '1'}":                      "needs the feature gate DefaultPodSysctls",
		gate + "{'Kernel!': '1'}":                                   "must have at most",
		gate + "{kernel.hostname: '1'}":                             "not known to have a value for each pod",
		gate + "{'kernel.msg*': '1'}":                               "must be one",
		gate + "{net.core.somaxconn: '1', net/core/somaxconn: '1'}": "is there twice",
	} {
		_, err := parsed(t, header+given+"\n", endpointFlag)
		require.ErrorContains(t, err, want, given)
	}
}

func TestTheGateOfThePeriod(t *testing.T) {
	_, err := parsed(t, header+"cpuCFSQuotaPeriod: 50ms\nfeatureGates: {CustomCPUCFSQuotaPeriod: false}\n")
	require.ErrorContains(t, err, "cpuCFSQuotaPeriod 50ms: another period than 100ms needs the feature gate "+
		"CustomCPUCFSQuotaPeriod")
}

// The gates of new fields of pods are off by default.
func TestTheGatesOfFields(t *testing.T) {
	for _, on := range []bool{false, true} {
		var args []string
		if on {
			args = []string{"--feature-gates=EmptyDirVolumeMode=true,AtomicWriteVolumeUserFields=true," +
				"GRPCContainerProbeTLS=true,H2CContainerProbe=true"}
		}
		s, err := parsed(t, "", args...)
		require.NoError(t, err)
		assert.Empty(t, s.Warnings)
		assert.Equal(t, volume.Options{EmptyDirModes: on, FileOwners: on}, s.Volumes())
		seLinux, err := parsed(t, "", fmt.Sprintf("--feature-gates=SELinuxMount=%t", on))
		require.NoError(t, err)
		assert.Equal(t, volume.Options{OnlyOncePod: !on}, seLinux.Volumes(), "it is on by default")
		assert.Equal(t, prober.Options{GRPCTLS: on, H2C: on}, s.Probes())
	}
}

// The table says something of each gate, and knows no other verdict than those in its head.
func TestTheTableOfFeatureGates(t *testing.T) {
	verdicts := map[string]int{}
	for line := range strings.Lines(knownGates) {
		if what, _, head := strings.Cut(line, ": "); head && strings.HasPrefix(what, "# ") &&
			!strings.Contains(line, "kubelet 1.37") {
			verdicts[strings.TrimPrefix(what, "# ")] = 0
		}
	}
	gates := 0
	for line := range strings.Lines(knownGates) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name := strings.Fields(line)[0]
		g, ok := findGate(name)
		require.True(t, ok, name)
		require.Contains(t, verdicts, g.here, name)
		verdicts[g.here]++
		if _, err := judgeGate(name, g.on); name != "AllBeta" { // which switches off what is on by default
			assert.NoError(t, err, "kubelet's default of %s", name)
		}
		gates++
	}
	assert.Equal(t, 254, gates, "kubelet 1.37.2 has these")
	for verdict, n := range verdicts {
		assert.Positive(t, n, verdict)
	}
}
