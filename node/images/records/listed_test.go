package records

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// An agent that was killed between the intent and the record has pulled the image, with a credential that is not known.
func TestKilledWhileItPulls(t *testing.T) {
	for about, c := range map[string]struct{ image, listed string }{
		"a tag":          {image, image},
		"a short name":   {"app", "docker.io/library/app:latest"},
		"a digest":       {"app@" + digest, "docker.io/library/app@" + digest},
		"tag and digest": {"app:1@" + digest, "docker.io/library/app@" + digest},
	} {
		t.Run(about, func(t *testing.T) {
			n := newNode(t)
			require.NoError(t, n.records().Intend(c.image))
			r := n.records()
			assert.False(t, n.may(r, c.image, ref, secret("1", "a", "h1")))
			require.NoError(t, r.Intend(c.image))
			r.Failed(c.image)
			assert.False(t, n.may(r, c.image, ref, secret("1", "a", "h1")),
				"a failed pull does not make it a preloaded image")
			r.Listed(listOf(runtime.Image{ID: "other"}, runtime.Image{ID: ref, Tags: []string{c.listed}}))
			assert.Empty(t, n.files("pulling"))
			assert.Empty(t, n.recorded(ref))
			r = n.records()
			assert.False(t, n.may(r, c.image, ref, secret("1", "a", "h1")))
			n.pull(r, c.image, ref, secret("1", "a", "h1"))
			assert.True(t, n.may(r, c.image, ref, secret("1", "a", "h1")))
			assert.Empty(t, n.logs)
		})
	}
}

func TestAnIntentAndARecord(t *testing.T) {
	n := newNode(t)
	creds := map[string]kubelet.ImagePullCredentials{
		name: {KubernetesSecrets: []kubelet.ImagePullSecret{secretOf("1", "a", "h1")}}}
	n.record(ref, creds)
	n.intent(image)
	r := n.records()
	r.Listed(listOf(runtime.Image{ID: ref, Tags: []string{image}}))
	assert.Equal(t, creds, n.recorded(ref))
	assert.Empty(t, n.files("pulling"))
}

// An image that was cut off may still arrive for a while after the agent has started.
func TestIntentsOfImagesThatAreAbsent(t *testing.T) {
	n := newNode(t)
	n.intent(image)
	synctest.Test(t, func(t *testing.T) {
		r := n.records()
		r.Listed(listOf())
		time.Sleep(listAge - time.Nanosecond)
		r.Listed(listOf())
		assert.False(t, n.may(r, image, ref))
		require.NoError(t, r.Intend(image))
		time.Sleep(time.Nanosecond)
		r.Listed(listOf())
		assert.Len(t, n.files("pulling"), 1, "it is being pulled")
		r.Failed(image)
		assert.Empty(t, n.files("pulling"))
		assert.True(t, n.may(r, image, ref))
	})
}

func TestUnknown(t *testing.T) {
	for _, present := range []bool{true, false} {
		n := newNode(t)
		synctest.Test(t, func(t *testing.T) {
			r := n.records()
			require.NoError(t, r.Intend(image))
			r.Unknown(image)
			assert.False(t, n.may(r, image, ref))
			time.Sleep(listAge)
			if present {
				r.Listed(listOf(runtime.Image{ID: ref, Tags: []string{image}}))
			} else {
				r.Listed(listOf())
			}
			assert.Equal(t, !present, n.may(r, image, ref))
			assert.Empty(t, n.files("pulling"))
			assert.Empty(t, n.logs)
		})
	}
}

// The record goes with the image. A record that is younger than a list can be stays: the list may have begun before the
// pull.
func TestRecordsGoWithTheirImages(t *testing.T) {
	n := newNode(t)
	for _, ref := range []string{"kept", "gone"} {
		n.record(ref, map[string]kubelet.ImagePullCredentials{name: {NodePodsAccessible: true}})
	}
	synctest.Test(t, func(t *testing.T) {
		r := n.records()
		n.pull(r, image, "new", secret("1", "a", "h1"))
		r.Listed(listOf(runtime.Image{ID: "kept"}, runtime.Image{ID: "preloaded"}))
		assert.ElementsMatch(t, []string{fileName("kept"), fileName("new")}, n.files("pulled"))
		time.Sleep(listAge - time.Nanosecond)
		r.Listed(listOf(runtime.Image{ID: "kept"}))
		assert.Len(t, n.files("pulled"), 2)
		time.Sleep(time.Nanosecond)
		r.Listed(listOf(runtime.Image{ID: "kept"}))
		assert.Equal(t, []string{fileName("kept")}, n.files("pulled"))
		assert.True(t, n.may(r, image, "gone"), "it was loaded by somebody else since")
		r.Listed(listOf())
		assert.Empty(t, n.files("pulled"))
		assert.Empty(t, r.entries)
	})
}

// A pull that is cut off takes the right to an image from nobody that had it before.
func TestPreloadedImageThatIsPulled(t *testing.T) {
	n := newNode(t)
	r := n.records()
	here := listOf(runtime.Image{ID: ref, Tags: []string{image}},
		runtime.Image{ID: "sha256:2", Digests: []string{name + "@" + digest}})
	r.Listed(here)
	for _, end := range []func(string){r.Failed, r.Unknown} {
		require.NoError(t, r.Intend(image))
		assert.True(t, n.may(r, image, ref))
		assert.False(t, n.may(r, image, "sha256:new"), "the tag has another image now")
		r.Listed(here)
		assert.True(t, n.may(r, image, ref))
		end(image)
		assert.True(t, n.may(r, image, ref))
		r.age()
		r.Listed(here)
		assert.True(t, n.may(r, image, ref))
		assert.Empty(t, n.files("pulling"))
		assert.Empty(t, n.files("pulled"))
	}
	n.pull(r, image, ref, secret("1", "a", "h1"))
	assert.False(t, n.may(r, image, ref), "as in kubelet")
	r.Listed(here)
	assert.False(t, n.may(r, image, ref))
	r.Listed(listOf())
	assert.Empty(t, r.preloaded)

	// An image that arrives while it is pulled is not preloaded.
	require.NoError(t, r.Intend(name+"@"+digest))
	r.Listed(here)
	assert.False(t, n.may(r, name+"@"+digest, "sha256:2"))
	r.Unknown(name + "@" + digest)
	r.Listed(here)
	assert.False(t, n.may(r, name+"@"+digest, "sha256:2"))
}

// A runtime that completes short names with a registry of its own lists the image under another name.
func TestShortNames(t *testing.T) {
	n := newNode(t)
	require.NoError(t, n.records().Intend("app:1"))
	r := n.records()
	for range 2 {
		r.Listed(listOf(runtime.Image{ID: ref, Tags: []string{"quay.example/app:1"}}))
		assert.False(t, n.may(r, "app:1", ref))
		r.age()
	}
	for image, short := range map[string]bool{"app": true, "team/app:1": true, "docker.io/app": true,
		"docker.io/library/app": false, "localhost:5000/app": false, image: false} {
		assert.Equal(t, short, isShort(image), image)
	}
}

// A pull that begins and is cut off while a list is processed is decided by the next list.
func TestIntentThatHasChanged(t *testing.T) {
	n := newNode(t)
	synctest.Test(t, func(t *testing.T) {
		r := n.records()
		require.NoError(t, r.Intend(image))
		r.Unknown(image)
		seen := r.intentOf(image)
		time.Sleep(time.Second)
		require.NoError(t, r.Intend(image))
		r.Unknown(image)
		r.closeIntent(image, seen)
		assert.Len(t, n.files("pulling"), 1)
		r.closeIntent(image, r.intentOf(image))
		assert.Empty(t, n.files("pulling"))

		n.pull(r, image, ref, Credential{})
		require.NoError(t, r.forget(fileName(ref)))
		assert.Len(t, n.files("pulled"), 1, "so is a record that has changed")
	})
}

// The record of an image that was pulled again, with the same credential, is not decided by a list that may be older
// than the pull.
func TestAPullThatIsNotInTheList(t *testing.T) {
	n := newNode(t)
	r := n.records()
	n.pull(r, image, ref, secret("1", "a", "h1"))
	r.age()
	n.pull(r, image, ref, secret("1", "a", "h1"))
	r.Listed(listOf())
	assert.False(t, n.may(r, image, ref), "it is no preloaded image")
	assert.Len(t, n.files("pulled"), 1)
	r.age()
	r.Listed(listOf())
	assert.Empty(t, n.files("pulled"))
}

// A pull of a short name that was cut off ends if no image of the list can be what the runtime would have made of it.
func TestShortNamesThatAreAbsent(t *testing.T) {
	n := newNode(t)
	require.NoError(t, n.records().Intend("app:1"))
	r := n.records()
	r.Listed(listOf())
	assert.Len(t, n.files("pulling"), 1, "the list may be older")
	r.age()
	r.Listed(listOf(runtime.Image{ID: "sha256:2", Tags: []string{"mirror.example/other/app:1"}}))
	assert.Len(t, n.files("pulling"), 1, "it may be this one")
	r.Listed(listOf(runtime.Image{ID: "sha256:2", Tags: []string{"mirror.example/app:2"}}))
	assert.Empty(t, n.files("pulling"))
}

// A list that is older than the end of a pull may have the image that the tag had before: it does not end the intent.
func TestAListThatIsOlderThanTheCut(t *testing.T) {
	n := newNode(t)
	synctest.Test(t, func(t *testing.T) {
		r := n.records()
		before := listOf(runtime.Image{ID: "sha256:before", Tags: []string{image}})
		r.Listed(before)
		require.NoError(t, r.Intend(image))
		r.Unknown(image)
		r.Listed(before)
		assert.False(t, n.may(r, image, ref), "the runtime has pulled it")
		assert.True(t, n.may(r, image, "sha256:before"))
		time.Sleep(listAge)
		r.Listed(listOf(runtime.Image{ID: "sha256:before"}, runtime.Image{ID: ref, Tags: []string{image}}))
		assert.False(t, n.may(r, image, ref))
		assert.Empty(t, n.files("pulling"))
		assert.Empty(t, n.recorded(ref))
		assert.True(t, n.may(r, image, "sha256:before"))
	})
}

// While an image is pulled by tag, and after a cut, it is no preloaded image by digest.
func TestDigestOfAnImageThatIsPulledByTag(t *testing.T) {
	n := newNode(t)
	r := n.records()
	byDigest := name + "@" + digest
	r.Listed(listOf(runtime.Image{ID: "sha256:before", Digests: []string{byDigest}}))
	require.NoError(t, r.Intend(image))
	assert.False(t, n.may(r, byDigest, ref))
	assert.True(t, n.may(r, byDigest, "sha256:before"), "the list has it")
	assert.True(t, n.may(r, "registry.example/team/other@"+digest, ref))
	assert.True(t, n.may(r, name+":2", ref), "another tag")
	r = n.records()
	assert.False(t, n.may(r, byDigest, ref))
	require.NoError(t, r.Intend(image))
	require.NoError(t, r.Pulled(image, ref, secret("1", "a", "h1")))
	assert.False(t, n.may(r, byDigest, ref))
	assert.True(t, n.may(r, byDigest, ref, secret("1", "a", "h1")))
}
