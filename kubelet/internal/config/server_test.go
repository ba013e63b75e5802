package config

import (
	"crypto/tls"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/features"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestServer(t *testing.T) {
	for _, tc := range []struct {
		name, config string
		args         []string
		check        func(*testing.T, *Settings)
	}{
		{"alone, nobody can be authenticated", "", nil, func(t *testing.T, s *Settings) {
			assert.False(t, *s.EnableServer)
			assert.False(t, *s.Authentication.Webhook.Enabled)
			assert.Empty(t, s.Authorization.Mode)
			assert.Equal(t, "127.0.0.1", s.ReadOnlyAddress)
			assert.Empty(t, s.Warnings)
		}},
		{"a port that is not opened", "port: 10250\n", nil, func(t *testing.T, s *Settings) {
			assert.Contains(t, s.Warnings[0], "port 10250 is not opened")
		}},
		{"alone, with certificates", "authentication: {x509: {clientCAFile: ca.crt}}\n", nil, func(t *testing.T, s *Settings) {
			assert.True(t, *s.EnableServer)
			assert.EqualValues(t, 10250, s.Port)
			assert.True(t, filepath.IsAbs(s.Authentication.X509.ClientCAFile), "relative to the file")
			assert.Empty(t, s.Authorization.Mode)
		}},
		{"alone, with tokens", "", []string{"--token-auth-file=tokens.csv", "--port=1234"}, func(t *testing.T, s *Settings) {
			assert.True(t, *s.EnableServer)
			assert.EqualValues(t, 1234, s.Port)
		}},
		{"a node of a cluster", "", []string{"--kubeconfig=k"}, func(t *testing.T, s *Settings) {
			assert.True(t, *s.EnableServer)
			assert.True(t, *s.Authentication.Webhook.Enabled)
			assert.False(t, *s.Authentication.Anonymous.Enabled)
			assert.Equal(t, Webhook, s.Authorization.Mode)
			assert.Equal(t, 2*time.Minute, s.Authentication.Webhook.CacheTTL.Duration)
			assert.Equal(t, 5*time.Minute, s.Authorization.Webhook.CacheAuthorizedTTL.Duration)
			assert.Equal(t, 30*time.Second, s.Authorization.Webhook.CacheUnauthorizedTTL.Duration)
			opts, err := s.NodeOptions()
			require.NoError(t, err)
			assert.EqualValues(t, 10250, opts.Port)
		}},
		{"a node without a port", "enableServer: false\n", []string{"--kubeconfig=k"}, func(t *testing.T, s *Settings) {
			opts, err := s.NodeOptions()
			require.NoError(t, err)
			assert.Zero(t, opts.Port)
			assert.NotContains(t, s.DeclaredFeatures(true, runtime.Features{}), "ExtendWebSocketsToKubelet")
		}},
		{"a node without sessions", "enableDebuggingHandlers: false\n", []string{"--kubeconfig=k"}, func(t *testing.T, s *Settings) {
			assert.NotContains(t, s.DeclaredFeatures(true, runtime.Features{}), "ExtendWebSocketsToKubelet")
		}},
		{"flags over fields", "address: 192.0.2.1\nauthentication: {webhook: {enabled: true, cacheTTL: 1m}}\nauthorization: {mode: AlwaysAllow}\ntlsMinVersion: VersionTLS13\ntlsCurvePreferences: [29]\n",
			[]string{"--kubeconfig=k", "--authentication-token-webhook=false", "--anonymous-auth",
				"--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}, func(t *testing.T, s *Settings) {
				assert.False(t, *s.Authentication.Webhook.Enabled)
				assert.Equal(t, "192.0.2.1", s.ReadOnlyAddress)
				opts, err := s.TLS()
				require.NoError(t, err)
				assert.EqualValues(t, tls.VersionTLS13, opts.MinVersion)
				assert.Equal(t, []tls.CurveID{tls.X25519}, opts.Curves)
				assert.Equal(t, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}, opts.CipherSuites)
				assert.Contains(t, s.Warnings[0], "everybody who reaches port 10250 can run commands")
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := parsed(t, header+tc.config, tc.args...)
			require.NoError(t, err)
			tc.check(t, s)
		})
	}
}

// A kubelet without a configuration file has ports open to everybody. The agent has not, and says so.
func TestLegacyDefaults(t *testing.T) {
	const endpoint, said = "--container-runtime-endpoint=/run/cri.sock", "--config: without it, a kubelet has "
	for _, tc := range []struct {
		name, config string
		args         []string
		want         string
	}{
		{"flags alone", "", nil, "--read-only-port=10255 --anonymous-auth --authorization-mode=AlwaysAllow, and everybody"},
		{"a node of a cluster", "", []string{"--kubeconfig=k"}, "--read-only-port=10255 --anonymous-auth --authorization-mode=AlwaysAllow, and everybody"},
		{"what is given is not named", "", []string{"--read_only_port=0", "--anonymous-auth=false"}, "--authorization-mode=AlwaysAllow, and everybody"},
		{"nor what is in place of it", "", []string{"--read-only-port=0", "--anonymous-auth=false", "--authorization-rbac-file=r"}, ""},
		{"nor what is chosen", "", []string{"--read-only-port=10255", "--anonymous-auth", "--authorization-mode=AlwaysAllow"}, ""},
		{"no port to open", "", []string{"--read-only-port=0", "--enable-server=false"}, ""},
		{"with a file", header, nil, ""},
		{"pods are started once", "", []string{"--runonce"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := parsed(t, tc.config, append(tc.args, endpoint)...)
			require.NoError(t, err)
			warned := strings.Join(s.Warnings, "\n")
			if tc.want == "" {
				assert.NotContains(t, warned, said)
				return
			}
			assert.Contains(t, warned, said+tc.want)
			assert.Zero(t, s.ReadOnlyPort)
			assert.False(t, *s.Authentication.Anonymous.Enabled)
			assert.NotEqual(t, AlwaysAllow, s.Authorization.Mode)
		})
	}
	s, err := parsed(t, "")
	require.NoError(t, err)
	assert.Empty(t, s.Warnings, "the quick start is no kubelet")
}

// A node declares the resize of pods as a whole only where it acts: with its feature gates, and with cgroups.
func TestDeclaredFeatures(t *testing.T) {
	const resize = "InPlacePodLevelResourcesVerticalScaling"
	for _, tc := range []struct {
		gates   string
		cgroups bool
		want    bool
	}{
		{"", true, true},
		{"", false, false},
		{"--feature-gates=PodLevelResources=false", true, false},
		{"--feature-gates=PodLevelResources=false,InPlacePodLevelResourcesVerticalScaling=false", true, false},
	} {
		args := []string{"--kubeconfig=k"}
		if tc.gates != "" {
			args = append(args, tc.gates)
		}
		s, err := parsed(t, header, args...)
		require.NoError(t, err)
		declared := s.DeclaredFeatures(tc.cgroups, runtime.Features{})
		assert.Equal(t, tc.want, slices.Contains(declared, resize), tc)
		assert.Contains(t, declared, "InPlacePodVerticalScalingInitContainers")
	}
}

// A node declares what a kubelet with the same feature gates and the same runtime declares, but for what is missing.
func TestDeclaredFeaturesAreKubelets(t *testing.T) {
	on := types.FeatureGateMap{}
	for name, g := range eachGate() {
		on[name] = g.on
	}
	given := []string{""}
	for _, f := range features.AllFeatures {
		for _, name := range f.Requirements().EnabledFeatureGates {
			given = append(given, name+"=true", name+"=false")
		}
	}
	tried := 0
	for _, gate := range given {
		for _, rt := range []runtime.Features{{}, {MountOptions: true}} {
			args := []string{"--kubeconfig=k"}
			gates := maps.Clone(on)
			if name, value, ok := strings.Cut(gate, "="); ok {
				args, gates[name] = append(args, "--feature-gates="+gate), value == "true"
			}
			s, err := parsed(t, header, args...)
			if err != nil {
				continue // no gate can have this value here, see TestFeatureGates
			}
			want := nodedeclaredfeatures.DefaultFramework.DiscoverNodeFeatures(&nodedeclaredfeatures.NodeConfiguration{
				FeatureGates: gates, Version: version.MajorMinor(1, 37),
				RuntimeFeatures: nodedeclaredfeatures.RuntimeFeatures{MountOptions: rt.MountOptions,
					UserNamespacesHostNetwork: true},
			})
			want = slices.DeleteFunc(want, func(name string) bool {
				g, _ := findGate(name)
				return g.here == "missing"
			})
			got := slices.Sorted(slices.Values(s.DeclaredFeatures(true, rt)))
			assert.Equal(t, want, got, "%s %+v", gate, rt)
			tried++
		}
	}
	assert.Greater(t, tried, 2*len(features.AllFeatures))
	const bindMounts = "VolumeBindMountOptions"
	s, err := parsed(t, header, "--feature-gates="+bindMounts+"=true")
	require.NoError(t, err)
	assert.NotContains(t, s.DeclaredFeatures(true, runtime.Features{}), bindMounts, "the runtime ignores them")
	assert.Contains(t, s.DeclaredFeatures(true, runtime.Features{MountOptions: true}), bindMounts)
}

// The resize of volumes in memory is refused and not declared without its gate.
func TestVolumeResizes(t *testing.T) {
	const resize = "InPlacePodVerticalScalingMemoryBackedVolumes"
	for gate, refusals := range map[string][2]string{
		"false": {"Memory-backed emptyDir volume resize is disabled", "Memory-backed emptyDir volume resize is disabled"},
		"true":  {"", "Memory-backed emptyDir volume resize is not supported on cgroups v1"},
	} {
		s, err := parsed(t, header, "--feature-gates="+resize+"="+gate)
		require.NoError(t, err)
		assert.Equal(t, gate == "true", slices.Contains(s.DeclaredFeatures(true, runtime.Features{}), resize))
		for i, want := range refusals {
			assert.Equal(t, want, s.RefuseVolumeResizes(func() bool { return i == 1 }))
		}
	}
}

func TestServerThatIsWrong(t *testing.T) {
	for _, tc := range []struct {
		config, want string
		args         []string
	}{
		{"port: 70000\n", "port 70000", []string{"--kubeconfig=k"}},
		{"address: host\n", `address "host"`, []string{"--kubeconfig=k"}},
		{"tlsCertFile: a\n", "tlsCertFile and tlsPrivateKeyFile", []string{"--kubeconfig=k"}},
		{"tlsCertFile: a\ntlsPrivateKeyFile: b\nserverTLSBootstrap: true\n", "one of the two", []string{"--kubeconfig=k"}},
		{"tlsMinVersion: VersionTLS11\n", "tlsMinVersion", []string{"--kubeconfig=k"}},
		{"tlsMinVersion: x\n", "tlsMinVersion", []string{"--kubeconfig=k"}},
		{"tlsCipherSuites: [x]\n", "tlsCipherSuites", []string{"--kubeconfig=k"}},
		{"tlsCurvePreferences: [-1]\n", "tlsCurvePreferences", []string{"--kubeconfig=k"}},
		{"authorization: {mode: Other}\n", `authorization.mode "Other"`, []string{"--kubeconfig=k"}},
		{"authorization: {webhook: {cacheAuthorizedTTL: -1s}}\n", "cacheAuthorizedTTL", []string{"--kubeconfig=k"}},
		{"authorization: {mode: Webhook}\n", "no API server to review requests", []string{"--client-ca-file=ca"}},
		{"authentication: {webhook: {enabled: true}}\n", "no API server to review tokens", []string{"--client-ca-file=ca"}},
		{"serverTLSBootstrap: true\n", "no cluster to request a certificate", []string{"--client-ca-file=ca"}},
		{"", "--authorization-rbac-file is in its place", []string{"--kubeconfig=k", "--authorization-mode=Webhook", "--authorization-rbac-file=r"}},
	} {
		_, err := parsed(t, header+tc.config, tc.args...)
		require.ErrorContains(t, err, tc.want, tc.config)
	}
	// Nothing of it matters if there is no port.
	_, err := parsed(t, header+"authorization: {mode: Webhook}\nauthentication: {webhook: {enabled: true}}\n")
	require.NoError(t, err)
}

func TestEffective(t *testing.T) {
	s, err := parsed(t, header+"maxPods: 7\nhairpinMode: none\nauthentication: {x509: {clientCAFile: "+
		"/ca}}\nlogging: {format: json, verbosity: 2}\nregisterNode: true\nfeatureGates: {DRANodeAllocatableResources: true}\n",
		embedded, "--max-pods=8", "--manifest-url-header=Authorization:secret")
	require.NoError(t, err)
	fields, err := s.Effective(Detected{Verbosity: 4})
	require.NoError(t, err)
	assert.Equal(t, kind, fields["kind"])
	assert.EqualValues(t, 8, fields["maxPods"])
	assert.EqualValues(t, 10250, fields["port"])
	assert.Equal(t, true, fields["enableServer"])
	assert.Equal(t, map[string]any{"format": "json", "verbosity": 4.0}, fields["logging"])
	assert.Equal(t, map[string]any{"Authorization": []any{masked}}, fields["staticPodURLHeader"])
	assert.Equal(t, masked, s.FlagValues["manifest-url-header"])
	assert.Equal(t, "8", s.FlagValues["max-pods"])
	for _, none := range []string{"hairpinMode", "maxOpenFiles", "registerNode", "featureGates", "volumePluginDir"} {
		assert.NotContains(t, fields, none, "it has no effect")
	}
	assert.NotContains(t, s.FlagValues, "hairpin-mode")
	assert.EqualValues(t, -999, fields["oomScoreAdj"])
	assert.Equal(t, []string{"secret"}, s.StaticPodURLHeader["Authorization"], "unchanged")
}

// What was detected wins, and the embedded runtime has neither cgroups nor a collection of images.
func TestEffectiveIsWhatWasDetected(t *testing.T) {
	const config = header + "cgroupDriver: cgroupfs\nimageGCHighThresholdPercent: 70\nimageGCLowThresholdPercent: " +
		"60\npodPidsLimit: 9\n"
	s, err := parsed(t, config, "--container-runtime-endpoint=unix:///cri.sock")
	require.NoError(t, err)
	effective := func(d Detected) map[string]any {
		fields, err := s.Effective(d)
		require.NoError(t, err)
		out := map[string]any{}
		for _, name := range []string{"cgroupDriver", "cgroupRoot", "cgroupsPerQOS", "resolvConf",
			"imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "imageMinimumGCAge", "imageMaximumGCAge",
			"podPidsLimit"} {
			if value, ok := fields[name]; ok {
				out[name] = value
			}
		}
		return out
	}
	images := map[string]any{"imageGCHighThresholdPercent": 70.0, "imageGCLowThresholdPercent": 60.0,
		"imageMinimumGCAge": "2m0s", "imageMaximumGCAge": "0s"}
	want := map[string]any{"cgroupDriver": "cgroupfs", "cgroupRoot": "/", "cgroupsPerQOS": true, "podPidsLimit": 9.0}
	maps.Copy(want, images)
	assert.Equal(t, want, effective(Detected{}), "the runtime does not say")
	want["cgroupDriver"], want["resolvConf"] = "systemd", "/run/systemd/resolve/resolv.conf"
	assert.Equal(t, want, effective(Detected{CgroupDriver: "systemd", ResolvConf: "/run/systemd/resolve/resolv.conf"}))
	assert.Equal(t, "cgroupfs", s.CgroupDriver, "unchanged")

	s, err = parsed(t, config, embedded)
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"cgroupsPerQOS": false, "imageGCHighThresholdPercent": 100.0, "podPidsLimit": 9.0},
		effective(Detected{CgroupDriver: "cgroupfs"}))
}
