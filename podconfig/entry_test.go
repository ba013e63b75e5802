package podconfig_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// TestMuxChecksPods has what the mux refuses of a source of static pods and of an API server.
func TestMuxChecksPods(t *testing.T) {
	t.Parallel()
	main := func(change func(c *v1.Container)) func(*v1.Pod) {
		return func(p *v1.Pod) { change(&p.Spec.Containers[0]) }
	}
	volume := func(v v1.Volume) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, v)
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: v.Name, MountPath: "/v"}}
		}
	}
	secret := func(path string) func(*v1.Pod) {
		return volume(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s",
			Items: []v1.KeyToPath{{Key: "k", Path: path}}}}})
	}
	projected := func(s v1.VolumeProjection) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.ServiceAccountName = "sa"
			volume(v1.Volume{Name: "v",
				VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
					Sources: []v1.VolumeProjection{s}}}})(p)
		}
	}
	subPath := func(m v1.VolumeMount) func(*v1.Pod) {
		return func(p *v1.Pod) {
			volume(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})(p)
			m.Name, m.MountPath = "v", "/v"
			p.Spec.Containers[0].VolumeMounts[0] = m
		}
	}
	const (
		nobody = iota // accepted from every source
		static        // refused, unless an API server has accepted it
		all           // refused from every source
	)
	for name, tc := range map[string]struct {
		change  func(*v1.Pod)
		refused int
		says    string
	}{
		"no defaults":                 {func(*v1.Pod) {}, nobody, ""},
		"references to other objects": {secret("a/b"), nobody, ""},
		"an update's container": {func(p *v1.Pod) {
			p.Spec.EphemeralContainers = []v1.EphemeralContainer{
				{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "i"}}}
		}, nobody, ""},

		"name":            {func(p *v1.Pod) { p.Name = "../evil" }, all, "metadata.name: Invalid value"},
		"namespace":       {func(p *v1.Pod) { p.Namespace = "../../evil" }, all, "metadata.namespace: Invalid value"},
		"UID":             {func(p *v1.Pod) { p.UID = "../evil" }, all, "metadata.uid: Invalid value"},
		"UID that is dir": {func(p *v1.Pod) { p.UID = ".." }, all, "metadata.uid: Invalid value"},
		"container":       {main(func(c *v1.Container) { c.Name = "../../../c" }), all, "spec.containers[0].name: Invalid value"},
		"no name":         {main(func(c *v1.Container) { c.Name = "" }), all, "spec.containers[0].name: "},
		"init container": {func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "a/b", Image: "i"}}
		}, all, "spec.initContainers[0].name: Invalid value"},
		"ephemeral container": {func(p *v1.Pod) {
			p.Spec.EphemeralContainers = []v1.EphemeralContainer{
				{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "..", Image: "i"}}}
		}, all, "spec.ephemeralContainers[0].name: Invalid value"},
		"twice": {func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "c", Image: "i"}}
		}, all, ".name: Duplicate value: \"c\""},
		"volume":          {volume(v1.Volume{Name: "../v"}), all, "spec.volumes[0].name: Invalid value"},
		"volume twice":    {func(p *v1.Pod) { volume(v1.Volume{Name: "v"})(p); volume(v1.Volume{Name: "v"})(p) }, all, "spec.volumes[1].name: Duplicate value"},
		"subPath":         {subPath(v1.VolumeMount{SubPath: "a/../../b"}), all, "must not contain '..'"},
		"subPathExpr":     {subPath(v1.VolumeMount{SubPathExpr: "/$(A)"}), all, "must be a relative path"},
		"key of a secret": {secret("../../k"), all, "must not contain '..'"},
		"field": {projected(v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{
			{Path: "../f", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}}), all, "must not contain '..'"},
		"token":        {projected(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "/t"}}), all, "must be a relative path"},
		"trust bundle": {projected(v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "../b"}}), all, "must not contain '..'"},
		"certificate":  {projected(v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{KeyPath: "../b"}}), all, "must not contain '..'"},
		"profile": {main(func(c *v1.Container) {
			c.SecurityContext = &v1.SecurityContext{SeccompProfile: &v1.SeccompProfile{
				Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr.To("../p")}}
		}), all, "must not contain '..'"},

		"no containers": {func(p *v1.Pod) { p.Spec.Containers = nil }, static, "spec.containers: Required value"},
		"no image":      {main(func(c *v1.Container) { c.Image = "" }), static, "spec.containers[0].image: Required value"},
		"name of a container that only a newer API server permits": {main(func(c *v1.Container) { c.Name = "a_b" }), static, "spec.containers[0].name"},
		"unknown value":  {func(p *v1.Pod) { p.Spec.RestartPolicy = "Sometimes" }, static, "spec.restartPolicy: Unsupported value"},
		"mirror pod":     {func(p *v1.Pod) { p.Annotations = map[string]string{podspec.AnnotationConfigMirror: "h"} }, static, "the API server's copy of a static pod"},
		"no UTF-8":       {main(func(c *v1.Container) { c.Args = []string{"a", "\xff"} }), static, "spec.containers[0].args[1]: Invalid value: must be valid UTF-8"},
		"key, no UTF-8":  {func(p *v1.Pod) { p.Annotations = map[string]string{"a": "\xff"} }, static, `metadata.annotations["a"]: Invalid value`},
		"16 MiB as JSON": {main(func(c *v1.Container) { c.Args = []string{strings.Repeat("<", 3<<20)} }), static, "must not have more than 15 MiB as JSON"},
	} {
		for _, source := range []string{"broker", podspec.SourceAPI} {
			t.Run(name+" from "+source, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, source)
					defer r.stop()
					pod := testPod("1", "a", tc.change)
					r.set(0, pod, testPod("2", "good"))
					got := strings.Join(r.read(), " ")
					rejected := r.mux.Sources()[0].Rejected
					if tc.refused == all || tc.refused == static && source != podspec.SourceAPI {
						assert.Equal(t, "ADD "+source+" good/2", got, "the good pods of the source go on")
						require.Len(t, rejected, 1)
						assert.Equal(t, pod.UID, rejected[0].Pod.UID)
						require.Len(t, r.rejected, 1)
						assert.Contains(t, r.rejected[0], tc.says)
						assert.Equal(t, r.rejected[0], rejected[0].Err.Error())
						assert.Less(t, len(r.rejected[0]), 3000)
						return
					}
					assert.Contains(t, got, "a/1")
					assert.Empty(t, rejected)
					assert.Empty(t, r.rejected)
				})
			})
		}
	}
}

func TestMuxSetsDefaults(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"broker", podspec.SourceAPI} {
		synctest.Test(t, func(t *testing.T) {
			pod := testPod("1", "a", func(p *v1.Pod) { p.Spec.Volumes = []v1.Volume{{Name: "newer"}} })
			before := pod.DeepCopy()
			mux, err := podconfig.New(podconfig.Options{NodeName: "edge-7",
				Sources: []podconfig.Source{podconfig.NewStatic(source, pod)}})
			require.NoError(t, err)
			done := make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { done <- mux.Run(ctx) }()
			got := (<-mux.Changes()).Pods[0]
			cancel()
			require.NoError(t, <-done)
			assert.Equal(t, before, pod, "the source's pod is not changed")
			assert.Equal(t, ptr.To[int64](30), got.Spec.TerminationGracePeriodSeconds)
			assert.Equal(t, v1.PullIfNotPresent, got.Spec.Containers[0].ImagePullPolicy)
			if source == podspec.SourceAPI {
				assert.Nil(t, got.Spec.Volumes[0].EmptyDir, "it may be of a type that is not known here")
				assert.Empty(t, got.Spec.NodeName)
			} else {
				assert.NotNil(t, got.Spec.Volumes[0].EmptyDir)
				assert.Equal(t, "edge-7", got.Spec.NodeName)
			}
		})
	}
}

// An update that is not valid changes nothing, except that it can end the pod.
func TestMuxKeepsAPodWhoseUpdateIsNotValid(t *testing.T) {
	t.Parallel()
	bad := func(p *v1.Pod) { p.Spec.Containers[0].Name = "../c" }
	deliver := map[string]func(s podconfig.Sink, pods ...*v1.Pod){
		"snapshots": func(s podconfig.Sink, pods ...*v1.Pod) { s.Set(pods) },
		"deltas":    func(s podconfig.Sink, pods ...*v1.Pod) { s.Apply(podconfig.Delta{Update: pods}) },
	}
	for name, deliver := range deliver {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &driven{name: "broker", calls: make(chan func(podconfig.Sink) error)}
				r := newRigWith(t, podconfig.Options{Sources: []podconfig.Source{s}})
				defer r.stop()
				step := func(want string, pods ...*v1.Pod) {
					t.Helper()
					s.do(func(sink podconfig.Sink) { deliver(sink, pods...) })
					assert.Equal(t, want, strings.Join(r.read(), ", "))
				}
				s.do(func(sink podconfig.Sink) { sink.Set(nil) })
				r.read()
				good := testPod("1", "a")
				step("ADD broker a/1", good)
				for range 3 {
					step("", testPod("1", "a", bad)) // a copy
				}
				wrong := testPod("1", "a", bad, image("y"), bad)
				step("", wrong)
				step("", wrong)
				assert.Len(t, r.rejected, 1, "the same problem is reported once")
				assert.Contains(t, r.rejected[0], "it stays as it was")
				rejected := r.mux.Sources()[0].Rejected
				require.Len(t, rejected, 1)
				time.Sleep(time.Hour)
				step("", wrong)
				assert.Equal(t, rejected, r.mux.Sources()[0].Rejected, "since the first time")

				step("UPDATE broker a/1", testPod("1", "a", image("x")))
				assert.Empty(t, r.mux.Sources()[0].Rejected)
				step("DELETE broker a/1", testPod("1", "a", bad, deleted))
				require.Len(t, r.mux.Sources()[0].Rejected, 1)
				step("UPDATE broker a/1", good) // not deleted
				assert.Empty(t, r.mux.Sources()[0].Rejected)
				step("DELETE broker a/1", testPod("1", "a", bad, deleted))
				s.do(func(sink podconfig.Sink) { sink.Apply(podconfig.Delta{Update: []*v1.Pod{good, good}}) })
				assert.Equal(t, []string{"UPDATE broker a/1"}, r.read(), "the same pod twice")
				step("DELETE broker a/1", testPod("1", "a", bad, deleted))
				step("UPDATE broker a/1", good)
				s.do(func(sink podconfig.Sink) {
					sink.Apply(podconfig.Delta{Update: []*v1.Pod{testPod("1", "a", bad, deleted)}})
				})
				assert.Equal(t, []string{"DELETE broker a/1"}, r.read())
				step("UPDATE broker a/1", good)
				s.do(func(sink podconfig.Sink) { sink.Apply(podconfig.Delta{Remove: []types.UID{"1"}}) })
				assert.Equal(t, []string{"REMOVE broker a/1"}, r.read())
				assert.Empty(t, r.mux.Sources()[0].Rejected)
			})
		})
	}
}

// Pods of an earlier run are checked, too, and a source that passes such a pod on does not bring it in.
func TestMuxChecksRestoredPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opts := restoring(testPod("1", "../a", from("file")), testPod("2", "b", from("file")))
		r := newRigWith(t, opts, "file")
		defer r.stop()
		assert.Equal(t, []string{"RESTORE file b/2"}, r.read())
		require.Len(t, r.rejected, 1)
		require.Len(t, r.mux.Sources()[0].Rejected, 1)
		r.set(0, testPod("1", "../a", from("file")), testPod("2", "b", from("file")))
		r.read()
		assert.Len(t, r.rejected, 1)
		assert.Equal(t, "../a", r.mux.Sources()[0].Rejected[0].Pod.Name)
	})
}
