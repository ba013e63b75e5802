package records

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func (n *node) pull(r *Records, image, ref string, c Credential) {
	n.t.Helper()
	require.NoError(n.t, r.Intend(image))
	require.NoError(n.t, r.Pulled(image, ref, c))
}

func (n *node) may(r *Records, image, ref string, c ...Credential) bool {
	n.t.Helper()
	decision, err := r.Decide(image, ref, func() ([]Credential, error) { return c, nil })
	require.NoError(n.t, err)
	return decision.MayUse()
}

// files returns the names of the files of a directory.
func (n *node) files(kind string) (names []string) {
	entries, err := os.ReadDir(filepath.Join(n.dir, "image_manager", kind))
	if !os.IsNotExist(err) {
		require.NoError(n.t, err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// age makes what has changed older than a list of images can be.
func (r *Records) age() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, e := range r.entries {
		if !e.changed.IsZero() {
			e.changed = e.changed.Add(-listAge)
			r.entries[name] = e
		}
	}
	for image, i := range r.intents {
		if !i.open.IsZero() {
			i.open = i.open.Add(-listAge)
			r.intents[image] = i
		}
	}
}

func listOf(images ...runtime.Image) runtime.ImageList { return runtime.ImageList{Images: images} }

// The bytes are those that kubelet 1.36 writes.
func TestFormat(t *testing.T) {
	n := newNode(t)
	r := n.records()
	require.NoError(t, r.Intend("docker.io/testing/test:latest"))
	assert.Equal(t, []string{"sha256-aef2af226629a35d5f3ef0fdbb29fdbebf038d0acd8850590e8c48e1e283aa56"},
		n.files("pulling"))
	data, err := os.ReadFile(n.path("pulling", "docker.io/testing/test:latest"))
	require.NoError(t, err)
	assert.Equal(t,
		`{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"docker.io/testing/test:latest"}`+"\n", string(data))

	require.NoError(t, r.Pulled("docker.io/testing/test:latest",
		"testimageref", Credential{Secret: &Secret{UID: "testsecretuid", Namespace: "default", Name: "pull-secret",
			Hash: "testsecrethash"}}))
	assert.Empty(t, n.files("pulling"))
	assert.Equal(t, []string{"sha256-b3c0cc4278800b03a308ceb2611161430df571ca733122f0a40ac8b9792a9064"},
		n.files("pulled"))
	data, err = os.ReadFile(n.path("pulled", "testimageref"))
	require.NoError(t, err)
	before, rest, _ := strings.Cut(string(data), `"lastUpdatedTime":"`)
	at, after, _ := strings.Cut(rest, `"`)
	assert.Equal(t, `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1",`, before)
	assert.Equal(t,
		`,"imageRef":"testimageref","credentialMapping":{"docker.io/testing/test":{"kubernetesSecrets":[{"uid":"testsecretuid","namespace":"default","name":"pull-secret","credentialHash":"testsecrethash"}]}}}`+"\n", after)
	updated, err := time.Parse("2006-01-02T15:04:05Z", at)
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now(), updated, time.Minute)

	n.pull(r, "a", "empty", Credential{})
	data, err = os.ReadFile(n.path("pulled", "empty"))
	require.NoError(t, err)
	assert.Contains(t, string(data), `"credentialMapping":{"a":{"nodePodsAccessible":true}}}`)
	for _, name := range append(n.files("pulled"), "", "..") {
		info, err := os.Stat(filepath.Join(n.dir, "image_manager", "pulled", name))
		require.NoError(t, err)
		assert.Zero(t, info.Mode().Perm()&0o077, name)
	}
}

// The files are those that kubelet 1.36.3 has written, byte for byte.
func TestFilesOfKubelet(t *testing.T) {
	n := newNode(t)
	record := `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2026-11-26T18:35:31Z","imageRef":"sha256:k","credentialMapping":{"reg.example/k":{"kubernetesServiceAccounts":[{"uid":"u","namespace":"n","name":"sa"}]}}}` + "\n"
	intent := `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"reg.example/left:1"}` +
		"\n"
	n.write("pulled", "sha256:k", record)
	n.write("pulling", "reg.example/left:1", intent)
	r := n.records()
	sa := Credential{ServiceAccount: &ServiceAccount{UID: "u", Namespace: "n", Name: "sa"}}
	assert.True(t, n.may(r, "reg.example/k:1", "sha256:k", sa))
	assert.False(t, n.may(r, "reg.example/k:1", "sha256:k"))
	assert.False(t, n.may(r, "reg.example/left:1", "sha256:left", sa))

	read, err := decodeRecord(fileName("sha256:k"), []byte(record))
	require.NoError(t, err)
	written, err := encodeRecord(read)
	require.NoError(t, err)
	assert.Equal(t, record, string(written))
	written, err = encodeIntent("reg.example/left:1")
	require.NoError(t, err)
	assert.Equal(t, intent, string(written))
}

// Kubelet 1.33 and 1.34 have written v1alpha1. The files are written again with the first list.
func TestFilesOfOlderVersions(t *testing.T) {
	n := newNode(t)
	n.write("pulled", ref,
		`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1alpha1","lastUpdatedTime":"2024-10-21T12:26:40Z","imageRef":"`+ref+`","credentialMapping":{"`+name+`":{"nodePodsAccessible":true}}}`)
	n.write("pulling", image, `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1alpha1","image":"`+image+
		`"}`)
	r := n.records()
	assert.True(t, n.may(r, image, ref))
	r.Listed(listOf(runtime.Image{ID: ref, Tags: []string{image}}))
	assert.Equal(t, map[string]kubelet.ImagePullCredentials{name: {NodePodsAccessible: true}}, n.recorded(ref))
	data, err := os.ReadFile(n.path("pulled", ref))
	require.NoError(t, err)
	assert.Contains(t, string(data), `"lastUpdatedTime":"2024-10-21T12:26:40Z"`, "its content has not changed")
	assert.Empty(t, n.files("pulling"))
	assert.Empty(t, n.logs)
}

func TestPullsOfOneImage(t *testing.T) {
	n := newNode(t)
	r := n.records()
	for range 3 {
		require.NoError(t, r.Intend(image))
	}
	r.Failed(image)
	require.NoError(t, r.Pulled(image, ref, secret("1", "a", "h1")))
	assert.Len(t, n.files("pulling"), 1)
	assert.False(t, n.may(r, image, "another"), "a pull is under way")
	r.Failed(image)
	assert.Empty(t, n.files("pulling"))
	assert.True(t, n.may(r, image, "another"))
	r.Failed(image) // of no Intend
	r.Unknown(image)
	assert.True(t, n.may(r, image, "another"))
	assert.Empty(t, r.intents)
	assert.Empty(t, r.names)
	assert.Empty(t, r.busy.held)

	require.NoError(t, r.Intend(image))
	require.NoError(t, r.Pulled(image, ref, secret("2", "b", "h2")))
	assert.Equal(t, []kubelet.ImagePullSecret{secretOf("1", "a", "h1"), secretOf("2", "b", "h2")},
		n.recorded(ref)[name].KubernetesSecrets)
	n.pull(r, image, ref, account("1", "a"))
	assert.Len(t, n.recorded(ref)[name].KubernetesSecrets, 2)
	assert.Len(t, n.recorded(ref)[name].KubernetesServiceAccounts, 1)
	n.pull(r, image, ref, Credential{})
	assert.Equal(t, map[string]kubelet.ImagePullCredentials{name: {NodePodsAccessible: true}}, n.recorded(ref))
	n.pull(r, image, ref, secret("1", "a", "h1"))
	assert.Equal(t, map[string]kubelet.ImagePullCredentials{name: {NodePodsAccessible: true}}, n.recorded(ref))
	n.pull(r, "other", ref, secret("1", "a", "h1"))
	assert.Len(t, n.recorded(ref), 2)
	require.Error(t, r.Pulled("NOT VALID", ref, Credential{}))
}

func TestSecretsOfARecordAreBounded(t *testing.T) {
	var r *recordFile
	for i := range maxSecrets + 10 {
		r = r.merge(ref, name, allowed{Secrets: []secretID{{UID: "1", Namespace: "a", Name: strings.Repeat("x", i+1)}}})
	}
	assert.Len(t, r.Credentials[name].Secrets, maxSecrets)
	assert.Len(t, r.Credentials[name].Secrets[maxSecrets-1].Name, maxSecrets+10, "the latest one is kept")
	same := r.merge(ref, name, allowed{Secrets: []secretID{r.Credentials[name].Secrets[7]}})
	assert.Same(t, r, same)
	assert.Same(t, r, r.merge(ref, name, allowed{}))
}

// A file that cannot be understood never permits anything, and never prevents more than it must.
func TestDamagedFiles(t *testing.T) {
	good := `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":null,"imageRef":"` + ref + `","credentialMapping":{"` + name + `":{"nodePodsAccessible":true}}}`
	replace := func(old, by string) string {
		require.Contains(t, good, old)
		return strings.Replace(good, old, by, 1)
	}
	for about, content := range map[string]string{
		"empty": "", "spaces": " \n", "cut off": good[:len(good)-9], "zeros": string(make([]byte, 100)), "no object": "[]", "null": "null", "more after it": good + "x",
		"another kind": replace("ImagePulledRecord", "ImagePullIntent"), "another version": replace("v1beta1", "v2"), "another group": replace("kubelet.config", "config"),
		"an unknown field": replace(`"imageRef"`, `"more":1,"imageRef"`), "an unknown credential": replace(`"nodePodsAccessible"`, `"onlyOnMondays":true,"nodePodsAccessible"`),
		"a repeated field": replace(`"imageRef"`, `"imageRef":"`+ref+`","imageRef"`), "another case": replace("imageRef", "imageref"),
		"another image": replace(ref, "sha256:other"), "a wrong type": replace("true", `"true"`),
	} {
		t.Run(about, func(t *testing.T) {
			n := newNode(t)
			n.write("pulled", ref, content)
			n.record("sha256:well", map[string]kubelet.ImagePullCredentials{name: {NodePodsAccessible: true}})
			r := n.records()
			for range 2 {
				assert.False(t, n.may(r, image, ref, secret("1", "a", "h1")))
			}
			assert.True(t, n.may(r, image, "sha256:well"), "another record")
			assert.True(t, n.may(r, image, "sha256:preloaded"))
			require.Len(t, n.logs, 1)
			assert.Contains(t, n.logs[0], fileName(ref))

			n.pull(r, image, ref, secret("1", "a", "h1"))
			assert.True(t, n.may(n.records(), image, ref, secret("1", "a", "h1")), "the pull has replaced it")
			n.opts.Policy = NeverVerify
			n.write("pulled", ref, content)
			assert.True(t, n.may(n.records(), image, ref), "nothing is verified")
		})
	}
	t.Run("it is put right while the agent runs", func(t *testing.T) {
		n := newNode(t)
		n.write("pulled", ref, "")
		r := n.records()
		require.False(t, n.may(r, image, ref))
		n.write("pulled", ref, good)
		assert.True(t, n.may(r, image, ref))
	})
	t.Run("it goes with its image", func(t *testing.T) {
		n := newNode(t)
		n.write("pulled", ref, "")
		r := n.records()
		require.False(t, n.may(r, image, ref))
		r.Listed(listOf(runtime.Image{ID: ref}))
		assert.Len(t, n.files("pulled"), 1)
		r.Listed(listOf())
		assert.Empty(t, n.files("pulled"))
		assert.Len(t, n.logs, 1)
	})
	t.Run("it is removed while the agent runs", func(t *testing.T) {
		n := newNode(t)
		n.write("pulled", ref, "")
		r := n.records()
		require.NoError(t, r.load())
		require.NoError(t, os.RemoveAll(filepath.Join(n.dir, "image_manager")))
		assert.True(t, n.may(r, image, ref))
		n.pull(r, image, ref, Credential{})
		assert.Len(t, n.recorded(ref), 1)
	})
}

// A damaged intent stands for its image until the image is pulled, also if a pull fails: else the image would count as
// preloaded.
func TestDamagedIntents(t *testing.T) {
	for about, content := range map[string]string{
		"empty": "", "another kind": `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"` + image + `"}`,
		"another image": `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"other"}`,
	} {
		t.Run(about, func(t *testing.T) {
			n := newNode(t)
			n.write("pulling", image, content)
			r := n.records()
			assert.False(t, n.may(r, image, ref))
			assert.True(t, n.may(r, "other", ref))
			assert.Len(t, n.logs, 1)
			r.Listed(listOf())
			r.age()
			r.Listed(listOf())
			assert.False(t, n.may(r, image, ref))
			r.Listed(listOf(runtime.Image{ID: ref, Tags: []string{"registry.example/mirror/app:1"}}))
			assert.False(t, n.may(r, image, ref))
			require.NoError(t, r.Intend(image))
			r.Failed(image)
			assert.False(t, n.may(r, image, ref))
			r.Listed(listOf(runtime.Image{ID: ref, Tags: []string{image}}))
			assert.False(t, n.may(r, image, ref, secret("1", "a", "h1")))
			assert.Empty(t, n.recorded(ref))
			assert.Empty(t, n.files("pulling"))
		})
	}
}

// What other programs have left is neither a record nor a reason to fail.
func TestOtherFiles(t *testing.T) {
	n := newNode(t)
	n.record(ref, map[string]kubelet.ImagePullCredentials{name: {NodePodsAccessible: true}})
	for _, name := range []string{"README", "sha256", fileName("killed") + ".tmp"} {
		require.NoError(t, os.WriteFile(filepath.Join(n.dir, "image_manager", "pulled", name), nil, 0o600))
	}
	require.NoError(t, os.Mkdir(n.path("pulled", "directory"), 0o700))
	r := n.records()
	assert.True(t, n.may(r, image, ref))
	assert.False(t, n.may(r, image, "directory"))
	r.Listed(listOf(runtime.Image{ID: ref}, runtime.Image{ID: "directory"}))
	assert.ElementsMatch(t, []string{"README", "sha256", fileName("directory"), fileName(ref)}, n.files("pulled"))
}

func TestDirectoriesThatCannotBeRead(t *testing.T) {
	n := newNode(t)
	dir := filepath.Join(n.dir, "image_manager")
	require.NoError(t, os.WriteFile(dir, nil, 0o600)) // in place of the directory
	r := n.records()
	for range 2 {
		assert.False(t, n.may(r, image, ref))
		r.Listed(listOf())
	}
	require.Len(t, n.logs, 1)
	require.ErrorContains(t, r.Intend(image), `recording that image "`+image+`" is pulled`)
	require.NoError(t, os.Remove(dir))
	assert.True(t, n.may(r, image, ref), "it is read again")
	n.pull(r, image, ref, Credential{})
}

// full makes writes of a file fail as on a full disk, and returns the function that makes space.
func (n *node) full(kind, key string) (space func()) {
	if _, err := os.Stat("/dev/full"); err != nil {
		n.t.Skip(err)
	}
	path := n.path(kind, key) + tempSuffix
	require.NoError(n.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(n.t, os.Symlink("/dev/full", path))
	return func() { _ = os.Remove(path) }
}

func TestFullDisk(t *testing.T) {
	t.Run("at the intent", func(t *testing.T) {
		n := newNode(t)
		n.record(ref, map[string]kubelet.ImagePullCredentials{name: {NodePodsAccessible: true}})
		r := n.records()
		require.NoError(t, r.load())
		n.full("pulling", image)
		require.ErrorContains(t, r.Intend(image), "no space left on device")
		assert.Empty(t, r.intents)
		assert.True(t, n.may(r, image, ref), "an image that is present can be used")
		require.NoError(t, r.Intend(image), "the failed write has removed the link")
		n.full("pulling", image)
		require.NoError(t, r.Intend(image), "there is an intent already")
	})
	t.Run("at the record", func(t *testing.T) {
		n := newNode(t)
		r := n.records()
		r.Listed(listOf(runtime.Image{ID: ref, Tags: []string{image}})) // it was preloaded
		require.NoError(t, r.Intend(image))
		n.full("pulled", ref)
		require.ErrorContains(t, r.Pulled(image, ref, secret("1", "a", "h1")), "no space left on device")
		assert.True(t, n.may(r, image, ref, secret("1", "a", "h1")), "the pod has pulled it")
		assert.False(t, n.may(r, image, ref, secret("2", "b", "h2")))
		assert.Len(t, n.files("pulling"), 1, "the image counts as pulled also if the agent is killed now")
		assert.False(t, n.may(n.records(), image, ref, secret("1", "a", "h1")))

		n.full("pulled", ref)
		r.Listed(listOf(runtime.Image{ID: ref, Tags: []string{image}}))
		assert.Len(t, n.files("pulling"), 1)
		assert.NotEmpty(t, n.logs)
		r.Listed(listOf(runtime.Image{ID: ref, Tags: []string{image}}))
		assert.Empty(t, n.files("pulling"))
		assert.Equal(t, []kubelet.ImagePullSecret{secretOf("1", "a", "h1")}, n.recorded(ref)[name].KubernetesSecrets)
	})
	t.Run("at the record of a secret that matches", func(t *testing.T) {
		n := newNode(t)
		r := n.records()
		n.pull(r, image, ref, secret("1", "a", "h1"))
		n.full("pulled", ref)
		assert.True(t, n.may(r, image, ref, secret("2", "b", "h1")))
		assert.Len(t, n.logs, 1)
		assert.True(t, n.may(r, image, ref, secret("2", "b", "h1")))
	})
}

// Calls about one image wait for each other, calls about others do not: a credential that is looked up, or a file that
// is written, holds up no other image.
func TestConcurrentCalls(t *testing.T) {
	n := newNode(t)
	r := n.records()
	n.pull(r, image, ref, secret("1", "a", "h1"))
	unlock := r.busy.lock(fileName("other"))
	n.pull(r, "third", "sha256:third", Credential{})
	decision, err := r.Decide(image, ref, func() ([]Credential, error) {
		n.pull(r, image, ref, secret("2", "b", "h2")) // called without a lock
		r.Listed(listOf(runtime.Image{ID: ref}))
		return []Credential{secret("1", "a", "h1")}, nil
	})
	require.NoError(t, err)
	assert.Equal(t, AllowedByRecord, decision)
	unlock()

	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 20 {
				c := secret(string(rune('a'+i)), "a", "h")
				if r.Intend(image) != nil || j%3 == 0 {
					r.Failed(image)
				} else {
					assert.NoError(t, r.Pulled(image, ref, c))
				}
				assert.True(t, n.may(r, image, ref, secret("1", "a", "h1")))
				r.Listed(listOf(runtime.Image{ID: ref}))
			}
		})
	}
	all.Wait()
	assert.Empty(t, n.files("pulling"))
	assert.Empty(t, r.intents)
	assert.Len(t, n.recorded(ref)[name].KubernetesSecrets, 10)
	assert.Empty(t, r.busy.held)
}

func TestRecordsAreReadOnce(t *testing.T) {
	n := newNode(t)
	n.record(ref,
		map[string]kubelet.ImagePullCredentials{
			name: {KubernetesSecrets: []kubelet.ImagePullSecret{secretOf("1", "a", "h1")}}})
	r := n.records()
	require.True(t, n.may(r, image, ref, secret("1", "a", "h1")))
	require.True(t, n.may(r, "preloaded", "sha256:preloaded"))
	require.NoError(t, os.RemoveAll(filepath.Join(n.dir, "image_manager")))
	assert.True(t, n.may(r, image, ref, secret("1", "a", "h1")))
	assert.False(t, n.may(r, image, ref))
	assert.True(t, n.may(r, "preloaded", "sha256:preloaded"))
}
