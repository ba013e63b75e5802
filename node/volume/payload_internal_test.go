package volume

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
)

// shown has a payload as "path mode content".
func shown(p payload) map[string]string {
	out := map[string]string{}
	for name, f := range p {
		out[name] = f.mode.String() + " " + string(f.data)
	}
	return out
}

func TestConfigMapFiles(t *testing.T) {
	m := &v1.ConfigMap{Data: map[string]string{"a": "1", "b": "2"}, BinaryData: map[string][]byte{"bin": {0}}}
	items := func(items ...v1.KeyToPath) []v1.KeyToPath { return items }
	for name, tc := range map[string]struct {
		items    []v1.KeyToPath
		mode     fs.FileMode
		optional bool
		want     map[string]string
		err      string
	}{
		"all keys":                          {mode: 0o644, want: map[string]string{"a": "-rw-r--r-- 1", "b": "-rw-r--r-- 2", "bin": "-rw-r--r-- \x00"}},
		"items":                             {items: items(v1.KeyToPath{Key: "a", Path: "x/y", Mode: ptr.To[int32](0o400)}, v1.KeyToPath{Key: "bin", Path: "z"}), mode: 0o600, want: map[string]string{"x/y": "-r-------- 1", "z": "-rw------- \x00"}},
		"one key twice":                     {items: items(v1.KeyToPath{Key: "a", Path: "x"}, v1.KeyToPath{Key: "a", Path: "y"}), want: map[string]string{"x": "---------- 1", "y": "---------- 1"}},
		"missing key":                       {items: items(v1.KeyToPath{Key: "no", Path: "x"}), err: "configmap references non-existent config key: no"},
		"missing, optional":                 {items: items(v1.KeyToPath{Key: "no", Path: "x"}, v1.KeyToPath{Key: "a", Path: "y"}), optional: true, want: map[string]string{"y": "---------- 1"}},
		"absolute item":                     {items: items(v1.KeyToPath{Key: "a", Path: "/etc/passwd"}), err: "invalid path: must be relative path: /etc/passwd"},
		"item leads out":                    {items: items(v1.KeyToPath{Key: "a", Path: "x/../../y"}), err: "invalid path: must not contain '..': x/../../y"},
		"a mode with more than permissions": {items: items(v1.KeyToPath{Key: "a", Path: "x", Mode: ptr.To[int32](0o4755)}), want: map[string]string{"x": "-rwxr-xr-x 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFiller(newWork())
			err := p.addConfigMap(m, tc.items, grant{mode: tc.mode}, tc.optional)
			if tc.err != "" {
				assert.EqualError(t, err, tc.err)
				return
			}
			assert.NoError(t, err)
			assert.Equal(t, tc.want, shown(p.payload))
		})
	}
}

func TestSecretFiles(t *testing.T) {
	s := &v1.Secret{Data: map[string][]byte{"k": []byte("v")}}
	p := newFiller(newWork())
	assert.NoError(t, p.addSecret(s, nil, grant{mode: 0o400}, false))
	assert.Equal(t, map[string]string{"k": "-r-------- v"}, shown(p.payload))
	assert.EqualError(t, p.addSecret(s, []v1.KeyToPath{{Key: "x", Path: "x"}}, grant{mode: 0o400}, false),
		"references non-existent secret key: x")
	assert.EqualError(t, newFiller(newWork()).addSecret(&v1.Secret{Data: map[string][]byte{"..data": nil}}, nil, grant{},
		false), "invalid path: must not start with '..': ..data")
}

func TestDownwardFiles(t *testing.T) {
	pod := testpod.New("web", testpod.UID("u1"), testpod.Annotation("b", "2\n"), testpod.Annotation("a", "1"),
		testpod.Container(v1.Container{
			Name: "main", Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1500m")}},
		}))
	pod.Labels = map[string]string{"app": "x"}
	field := func(path, field string) v1.DownwardAPIVolumeFile {
		return v1.DownwardAPIVolumeFile{Path: path, FieldRef: &v1.ObjectFieldSelector{FieldPath: field}}
	}
	amount := func(path, container, name string) v1.DownwardAPIVolumeFile {
		return v1.DownwardAPIVolumeFile{Path: path,
			ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: container, Resource: name}}
	}
	allocatable := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Ki")}
	p := newFiller(newWork())
	assert.NoError(t, p.addDownward(pod, []v1.DownwardAPIVolumeFile{
		field("name", "metadata.name"), field("in/uid", "metadata.uid"), field("labels", "metadata.labels"),
		field("annotations", "metadata.annotations"),
		field("one", "metadata.labels['app']"), field("none", "metadata.labels['no']"),
		amount("cpu", "main", "requests.cpu"), amount("memory", "main", "limits.memory"),
	}, allocatable, grant{mode: 0o644}))
	assert.Equal(t, map[string]string{
		"name": "-rw-r--r-- web", "in/uid": "-rw-r--r-- u1", "labels": `-rw-r--r-- app="x"`, "annotations": "-rw-r--r-- a=\"1\"\nb=\"2\\n\"",
		"one": "-rw-r--r-- x", "none": "-rw-r--r-- ", "cpu": "-rw-r--r-- 2", "memory": "-rw-r--r-- 1024",
	}, shown(p.payload))

	err := newFiller(newWork()).addDownward(pod, []v1.DownwardAPIVolumeFile{
		field("a", "spec.nodeName"), field("b", "spec.x['y']"), amount("c", "no", "limits.cpu"), {Path: "d"},
		field("../e", "metadata.name"),
	}, nil, grant{mode: 0o644})
	assert.EqualError(t, err,
		`[unsupported fieldPath: spec.nodeName, fieldPath "spec.x['y']" does not support subscript, container no not found, one of fieldRef and resourceFieldRef is required, invalid path: must not contain '..': ../e]`)
}

func TestPathsOfFiles(t *testing.T) {
	long := strings.Repeat("a", 256)
	for name, want := range map[string]string{
		"a":                            "a",
		"a//b/./c":                     "a/b/c",
		"a/..b":                        "a/..b",
		".hidden":                      ".hidden",
		"":                             "",
		".":                            "",
		"./":                           "",
		"..":                           "",
		"../a":                         "",
		"a/../b":                       "",
		"..a":                          "",
		"./..a":                        "",
		"..data/a":                     "",
		"/a":                           "",
		"a\x00b":                       "",
		long:                           "",
		"a/" + long:                    "",
		strings.Repeat("a/", 2049):     "",
		strings.Repeat("a/", 64) + "b": strings.Repeat("a/", 64) + "b",
		strings.Repeat("a/", 65) + "b": "",
	} {
		clean, err := pathOfFile(name)
		assert.Equal(t, want, clean, "%q", name)
		assert.Equal(t, want == "", err != nil, "%q", name)
	}
	assert.EqualError(t, payload{"a": {}, "a/b/c": {}}.check(), "invalid path: a is a file, and a/b/c is in it")
	assert.NoError(t, payload{"a/x": {}, "a/b/c": {}, "ab": {}}.check())
}

// No path that is accepted leads out of the volume, or to the files of the writer.
func FuzzPathsOfFiles(f *testing.F) {
	for _, seed := range []string{"a", "a/b", "..", "../a", "..data", "./..x", "a/../../b", "/a", ".", "a/./..b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		clean, err := pathOfFile(name)
		if err != nil {
			return
		}
		assert.True(t, fs.ValidPath(clean) || !utf8.ValidString(clean), "%q", clean)
		assert.NotEqual(t, ".", clean)
		assert.False(t, strings.HasPrefix(clean, "..") || strings.HasPrefix(clean, "/"), "%q", clean)
	})
}

func TestNestedMountPoints(t *testing.T) {
	mount := func(volume, at string) v1.VolumeMount { return v1.VolumeMount{Name: volume, MountPath: at} }
	pod := testpod.New("web", testpod.Container(
		v1.Container{Name: "a", VolumeMounts: []v1.VolumeMount{mount("v", "/etc/app/"), mount("w", "/etc/app/tls"),
			mount("x", "/etc/app/tls/deep"), mount("y", "/etc/app2"), mount("z", "/etc/app/tls2")}},
		v1.Container{Name: "b", VolumeMounts: []v1.VolumeMount{mount("w", "/srv/below"), mount("v", "/srv")}},
	))
	assert.Equal(t, map[string][]string{"v": {"tls", "tls2", "below"}, "w": {"deep"}}, nestedMountPoints(pod))
	pod = testpod.New("web", testpod.Container(v1.Container{Name: "a", VolumeMounts: []v1.VolumeMount{
		mount("v", "/"), mount("w", "/a"), mount("x", "/a-b"), mount("y", "/a/c"), mount("z", "/a.b/c"),
	}}))
	assert.Equal(t, map[string][]string{"v": {"a-b", "a.b/c", "a"}, "w": {"c"}}, nestedMountPoints(pod))
}

// A pod can have as many mounts as its spec has room for.
func TestManyNestedMountPoints(t *testing.T) {
	const n = 40_000
	var mounts []v1.VolumeMount
	for i := range n / 2 {
		mounts = append(mounts, v1.VolumeMount{Name: "v", MountPath: fmt.Sprintf("/v/%d", i)},
			v1.VolumeMount{Name: "w", MountPath: fmt.Sprintf("/v/0/w/%d", i)})
	}
	pod := testpod.New("web", testpod.Container(v1.Container{Name: "a", VolumeMounts: mounts}))
	took := testenv.CPUTime(t, func() { assert.Len(t, nestedMountPoints(pod)["v"], n/2) })
	assert.Less(t, took, 10*time.Second, "a quadratic cost takes minutes")
	_, err := newWork().nestedIn(pod, "v")
	assert.NoError(t, err)
	w := newWork()
	w.left = n / 4 * entrySize
	_, err = w.nestedIn(pod, "v")
	assert.ErrorIs(t, err, errTooMuch)
	pod = testpod.New("web", testpod.Container(v1.Container{Name: "a", VolumeMounts: []v1.VolumeMount{
		{Name: "v", MountPath: "/v"}, {Name: "w", MountPath: "/v" + strings.Repeat("/w", 65)},
	}}))
	_, err = newWork().nestedIn(pod, "v")
	assert.ErrorContains(t, err, "must have at most 64 levels below the mount of the volume")
}

func TestUserOf(t *testing.T) {
	run := func(uid *int64) *v1.SecurityContext { return &v1.SecurityContext{RunAsUser: uid} }
	of := func(pod *int64, containers ...*int64) *int64 {
		p := testpod.New("web")
		p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: pod}
		for _, uid := range containers {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{SecurityContext: run(uid)})
		}
		return userOf(p)
	}
	assert.Nil(t, of(nil, nil))
	assert.Equal(t, ptr.To[int64](5), of(ptr.To[int64](5), nil, nil))
	assert.Equal(t, ptr.To[int64](7), of(ptr.To[int64](5), ptr.To[int64](7)))
	assert.Nil(t, of(ptr.To[int64](5), ptr.To[int64](7), nil), "two users")
	assert.Nil(t, of(nil, ptr.To[int64](7), nil), "one is not known")
}
