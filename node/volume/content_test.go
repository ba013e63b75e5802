//go:build unix

package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

// held are the secrets and config maps of a test, by name.
type held struct {
	secrets map[string]*v1.Secret
	maps    map[string]*v1.ConfigMap
	err     error
}

func newHeld() *held {
	return &held{secrets: map[string]*v1.Secret{}, maps: map[string]*v1.ConfigMap{}}
}

func (h *held) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	if s := h.secrets[namespace+"/"+name]; s != nil && h.err == nil {
		return s, nil
	}
	return nil, errors.Join(h.err, apierrors.NewNotFound(v1.Resource("secret"), name))
}

func (h *held) ConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	if h.err != nil {
		return nil, h.err
	}
	if m := h.maps[namespace+"/"+name]; m != nil {
		return m, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("configmap"), name)
}

// minted is a TokenSource.
type minted struct {
	requests []string
	token    string
	err      error
}

func (m *minted) Token(_ context.Context, namespace, account string,
	r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	ref := r.Spec.BoundObjectRef
	m.requests = append(m.requests, namespace+"/"+account+" for "+ref.Kind+" "+ref.Name+" "+string(ref.UID))
	out := r.DeepCopy()
	out.Status.Token = m.token
	return out, m.err
}

func configMapVolume(name, of string, optional bool) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
		LocalObjectReference: v1.LocalObjectReference{Name: of}, Optional: &optional,
	}}}
}

func secretVolume(name, of string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: of,
		DefaultMode: ptr.To[int32](0o400)}}}
}

// in reads the files of a volume, by their path.
func in(t *testing.T, dir string, names ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		out[name] = info.Mode().String() + " " + string(data)
	}
	return out
}

func ownerOf(t *testing.T, path string) (uid, gid uint32) {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	st := info.Sys().(*syscall.Stat_t)
	return st.Uid, st.Gid
}

func contentManager(t *testing.T, src volume.Sources) *volume.Reconciler {
	t.Helper()
	m, err := volume.New(volume.Options{Sources: src})
	require.NoError(t, err)
	return m
}

// cleanUp removes the pod, so that nothing of the test stays mounted.
func cleanUp(t *testing.T, m *volume.Reconciler, p *v1.Pod, dir string) {
	t.Cleanup(func() { assert.NoError(t, m.Remove(context.WithoutCancel(t.Context()), kruntime.RefOf(p), dir)) })
}

func TestContentFollowsItsSources(t *testing.T) {
	h, tokens := newHeld(), &minted{token: "t1"}
	h.maps["default/conf"] = &v1.ConfigMap{Data: map[string]string{"a": "1"}}
	h.secrets["default/db"] = &v1.Secret{Data: map[string][]byte{"password": []byte("p")}}
	m, dir := contentManager(t, volume.Sources{Objects: h, Tokens: tokens}), filepath.Join(t.TempDir(), "u1")
	p := pod(
		configMapVolume("conf", "conf", false), configMapVolume("none", "missing", true), secretVolume("db", "db"),
		v1.Volume{Name: "info",
			VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
			}}}},
		v1.Volume{Name: "all",
			VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{DefaultMode: ptr.To[int32](0o440),
				Sources: []v1.VolumeProjection{
					{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
					{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "conf"}}},
					{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "missing"}, Optional: ptr.To(true)}},
					{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
					{},
				}}}},
	)
	p.Spec.ServiceAccountName = "sa"
	p.Labels = map[string]string{"app": "x"}
	cleanUp(t, m, p, dir)

	ready, err := m.SetUp(t.Context(), p, dir)
	require.NoError(t, err)
	assert.Equal(t, kruntime.Volume{
		HostPath: filepath.Join(dir, "volumes", "kubernetes.io~configmap", "conf"), ReadOnly: true, Relabel: true,
	}, ready["conf"])
	assert.Equal(t, map[string]string{"a": "-rw-r--r-- 1"}, in(t, ready["conf"].HostPath, "a"))
	assert.Equal(t, map[string]string{"password": "-r-------- p"}, in(t, ready["db"].HostPath, "password"))
	assert.Equal(t, map[string]string{"labels": `-rw-r--r-- app="x"`}, in(t, ready["info"].HostPath, "labels"))
	assert.Equal(t, map[string]string{"token": "-r--r----- t1", "a": "-r--r----- 1", "namespace": "-r--r----- default"},
		in(t, ready["all"].HostPath, "token", "a", "namespace"))
	assert.Equal(t, []string{"default/sa for Pod web u1"}, tokens.requests)
	assert.DirExists(t, ready["none"].HostPath)

	h.maps["default/conf"] = &v1.ConfigMap{Data: map[string]string{"b": "2"}}
	h.maps["default/missing"] = &v1.ConfigMap{Data: map[string]string{"here": "now"}}
	h.secrets["default/db"] = &v1.Secret{Data: map[string][]byte{"password": []byte("q")}}
	tokens.token = "t2"
	p = testpod.With(p, func(p *v1.Pod) { p.Labels["app"] = "y" })
	again, err := m.SetUp(t.Context(), p, dir)
	require.NoError(t, err)
	assert.Equal(t, ready, again)
	assert.Equal(t, map[string]string{"b": "-rw-r--r-- 2"}, in(t, ready["conf"].HostPath, "b"))
	assert.NoFileExists(t, filepath.Join(ready["conf"].HostPath, "a"))
	assert.Equal(t, map[string]string{"here": "-rw-r--r-- now"}, in(t, ready["none"].HostPath, "here"))
	assert.Equal(t, map[string]string{"password": "-r-------- q"}, in(t, ready["db"].HostPath, "password"))
	assert.Equal(t, map[string]string{"labels": `-rw-r--r-- app="y"`}, in(t, ready["info"].HostPath, "labels"))
	assert.Equal(t, map[string]string{"token": "-r--r----- t2", "b": "-r--r----- 2"},
		in(t, ready["all"].HostPath, "token", "b"))

	require.NoError(t, m.Remove(t.Context(), kruntime.RefOf(p), dir))
	assert.NoDirExists(t, dir)
}

// A pod waits for what is missing. Later, when it is gone again, the pod keeps what it has.
func TestMissingObjects(t *testing.T) {
	h := newHeld()
	m, dir := contentManager(t, volume.Sources{Objects: h}), filepath.Join(t.TempDir(), "u1")
	p := pod(configMapVolume("conf", "conf", false), secretVolume("db", "db"),
		emptyDir("tmp", v1.EmptyDirVolumeSource{}))
	cleanUp(t, m, p, dir)
	ready, err := m.SetUp(t.Context(), p, dir)
	var messages []string
	for _, e := range volume.SetUpErrors(err) {
		messages = append(messages, e.Message())
	}
	assert.Equal(t, []string{
		`MountVolume.SetUp failed for volume "conf" : configmap "conf" not found`,
		`MountVolume.SetUp failed for volume "db" : secret "db" not found`,
	}, messages)
	assert.Len(t, ready, 1, "what is ready is returned")

	h.maps["default/conf"] = &v1.ConfigMap{Data: map[string]string{"a": "1"}}
	h.secrets["default/db"] = &v1.Secret{Data: map[string][]byte{"password": []byte("p")}}
	ready, err = m.SetUp(t.Context(), p, dir)
	require.NoError(t, err)

	for _, why := range []error{nil, errors.New("not known at the moment")} {
		*h = *newHeld()
		h.err = why
		again, err := contentManager(t, volume.Sources{Objects: h}).SetUp(t.Context(), p, dir)
		require.Error(t, err)
		assert.Len(t, volume.SetUpErrors(err), 2)
		var outdated *volume.OutdatedError
		assert.ErrorAs(t, err, &outdated)
		assert.Equal(t, ready, again)
		assert.Equal(t, map[string]string{"a": "-rw-r--r-- 1"}, in(t, ready["conf"].HostPath, "a"))
	}
}

// An object that is not known at the moment is not a missing one.
func TestOptionalObjectThatIsNotKnown(t *testing.T) {
	h := newHeld()
	h.err = errors.New("not known at the moment")
	m, dir := contentManager(t, volume.Sources{Objects: h}), t.TempDir()
	ready, err := m.SetUp(t.Context(), pod(configMapVolume("conf", "conf", true)), dir)
	assert.ErrorContains(t, err, "not known at the moment")
	assert.Empty(t, ready)
}

func TestContentWithoutSources(t *testing.T) {
	m, dir := newManager(t), t.TempDir()
	p := pod(configMapVolume("conf", "conf", false),
		v1.Volume{Name: "token", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			Sources: []v1.VolumeProjection{{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}},
		}}})
	_, err := m.SetUp(t.Context(), p, dir)
	assert.ErrorContains(t, err, `configmap "conf" not found`)
	assert.ErrorIs(t, err, volume.ErrUnsupported)
	assert.ErrorContains(t, err, "serviceAccountToken")
}

// anchors has a trust bundle of any name, with an error if it is set.
type anchors struct{ err error }

func (a anchors) TrustBundle(_ context.Context, pod *v1.Pod, request *v1.ClusterTrustBundleProjection) ([]byte, error) {
	return []byte("bundle " + *request.Name + " for " + pod.Name), a.err
}

// A trust bundle is a file, and what is not supported is named.
func TestCertificatesInProjectedVolumes(t *testing.T) {
	projected := func(source v1.VolumeProjection) *v1.Pod {
		return pod(v1.Volume{Name: "v",
			VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
				Sources: []v1.VolumeProjection{source}}}})
	}
	bundle := func(name *string) v1.VolumeProjection {
		return v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: name,
			Path: "ca/bundle.pem"}}
	}
	for name, tc := range map[string]struct {
		source v1.VolumeProjection
		from   volume.TrustBundleSource
		want   string
		err    string
	}{
		"a bundle":       {source: bundle(ptr.To("a")), from: anchors{}, want: "bundle a for web"},
		"not found":      {source: bundle(ptr.To("a")), from: anchors{errors.New("there is none")}, err: "there is none"},
		"nothing named":  {source: bundle(nil), from: anchors{}, err: "ClusterTrustBundle projection requires either name or signerName to be set"},
		"no source":      {source: bundle(ptr.To("a")), err: "volume type not supported: clusterTrustBundle in a projected volume; this agent has no source of them"},
		"podCertificate": {source: v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{}}, err: "volume type not supported: podCertificate in a projected volume; this agent has no source of them"},
	} {
		t.Run(name, func(t *testing.T) {
			m, dir, p := contentManager(t, volume.Sources{TrustBundles: tc.from}), filepath.Join(t.TempDir(), "u1"),
				projected(tc.source)
			cleanUp(t, m, p, dir)
			ready, err := m.SetUp(t.Context(), p, dir)
			if tc.err != "" {
				failed := volume.SetUpErrors(err)
				require.Len(t, failed, 1)
				assert.Equal(t, `MountVolume.SetUp failed for volume "v" : `+tc.err, failed[0].Message())
				return
			}
			require.NoError(t, err)
			data, err := os.ReadFile(filepath.Join(ready["v"].HostPath, "ca/bundle.pem"))
			require.NoError(t, err)
			assert.Equal(t, tc.want, string(data))
		})
	}
}

// issued is a source of pod certificates.
type issued struct{ err error }

func (i issued) PodCertificate(_ context.Context, pod *v1.Pod, volume string, source int,
	_ *v1.PodCertificateProjection) (key, chain []byte, err error) {
	return fmt.Appendf(nil, "key of %s/%s/%d\n", pod.Name, volume, source), []byte("chain\n"), i.err
}

// A key and its certificates are in one file, in two, or in both; only the pod may read them, and
// they are never on a disk.
func TestPodCertificates(t *testing.T) {
	for name, tc := range map[string]struct {
		source v1.PodCertificateProjection
		err    error
		want   map[string]string
		fails  string
	}{
		"a bundle": {source: v1.PodCertificateProjection{CredentialBundlePath: "tls/bundle.pem"}, want: map[string]string{"tls/bundle.pem": "key of web/v/1\nchain\n"}},
		"apart":    {source: v1.PodCertificateProjection{KeyPath: "key", CertificateChainPath: "chain"}, want: map[string]string{"key": "key of web/v/1\n", "chain": "chain\n"}},
		"escape":   {source: v1.PodCertificateProjection{KeyPath: "../key"}, fails: "invalid path: must not contain '..': ../key"},
		"none yet": {source: v1.PodCertificateProjection{KeyPath: "key"}, err: errors.New("not issued"), fails: "not issued"},
	} {
		t.Run(name, func(t *testing.T) {
			m, dir := contentManager(t, volume.Sources{PodCertificates: issued{tc.err}}),
				filepath.Join(t.TempDir(), "u1")
			p := pod(v1.Volume{Name: "v",
				VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{},
					{PodCertificate: &tc.source}}}}})
			p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: ptr.To(int64(os.Getuid()))}
			cleanUp(t, m, p, dir)
			ready, err := m.SetUp(t.Context(), p, dir)
			if tc.fails == "" && os.Getuid() != 0 {
				require.ErrorContains(t, err, "the agent needs CAP_SYS_ADMIN")
				return
			}
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
				return
			}
			require.NoError(t, err)
			for file, want := range tc.want {
				path := filepath.Join(ready["v"].HostPath, file)
				data, err := os.ReadFile(path)
				require.NoError(t, err)
				assert.Equal(t, want, string(data))
				info, err := os.Stat(path)
				require.NoError(t, err)
				assert.Equal(t, "-rw-------", info.Mode().String())
			}
		})
	}
}

// The token belongs to the user of the containers and the group of the pod.
func TestOwnerOfTokens(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for name, tc := range map[string]struct {
		user, group *int64
		want        string
	}{
		"neither":        {want: "-rw-r--r--"},
		"user":           {user: ptr.To[int64](1000), want: "-rw-------"},
		"group":          {group: ptr.To[int64](2000), want: "-rw-r-----"},
		"user and group": {user: ptr.To[int64](1000), group: ptr.To[int64](2000), want: "-rw-r-----"},
	} {
		t.Run(name, func(t *testing.T) {
			m, dir := contentManager(t, volume.Sources{Tokens: &minted{token: "t"}}), filepath.Join(t.TempDir(), "u1")
			p := pod(v1.Volume{Name: "token", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
				Sources: []v1.VolumeProjection{{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}},
			}}})
			p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: tc.user, FSGroup: tc.group}
			cleanUp(t, m, p, dir)
			ready, err := m.SetUp(t.Context(), p, dir)
			require.NoError(t, err)
			file := filepath.Join(ready["token"].HostPath, "token")
			info, err := os.Stat(file)
			require.NoError(t, err)
			assert.Equal(t, tc.want, info.Mode().String())
			uid, gid := ownerOf(t, file)
			assert.Equal(t, ptr.Deref(tc.user, 0), int64(uid))
			assert.Equal(t, ptr.Deref(tc.group, 0), int64(gid))
		})
	}
}

// Directories for the mounts of other volumes are there, and stay.
func TestNestedMounts(t *testing.T) {
	h := newHeld()
	h.maps["default/conf"] = &v1.ConfigMap{Data: map[string]string{"a": "1"}}
	m, dir := contentManager(t, volume.Sources{Objects: h}), filepath.Join(t.TempDir(), "u1")
	p := pod(configMapVolume("conf", "conf", false), emptyDir("tmp", v1.EmptyDirVolumeSource{}))
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "conf", MountPath: "/etc/app"},
		{Name: "tmp", MountPath: "/etc/app/cache/tmp"}}
	cleanUp(t, m, p, dir)
	for _, data := range []string{"1", "2"} {
		h.maps["default/conf"] = &v1.ConfigMap{Data: map[string]string{"a": data}}
		ready, err := m.SetUp(t.Context(), p, dir)
		require.NoError(t, err)
		assert.DirExists(t, filepath.Join(ready["conf"].HostPath, "cache/tmp"))
		assert.Equal(t, map[string]string{"a": "-rw-r--r-- " + data}, in(t, ready["conf"].HostPath, "a"))
	}
}
