package images_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/node/images/records"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// The images of the model. The registry gives the private ones to some users, the public one to all. The preloaded one
// is on the node from the beginning.
const (
	private1, private2, public, preloaded = "r.io/private:1", "r.io/private:2", "r.io/public:1", "r.io/preloaded:1"
)

var modelUsers = []string{"", "ann", "bob", "eve"}

// tenants are a node and a registry, and who may have what.
type tenants struct {
	*registry
	puller *images.Puller

	mu sync.Mutex
	// accepts are the users that the registry accepts for private images.
	accepts map[string]bool
	// pulled are the users for which a pull of the image has succeeded.
	pulled map[string]map[string]bool
	errs   []error
}

func (n *tenants) restart(t *rapid.T, dir string) {
	r, err := records.New(dir, records.Options{})
	require.NoError(t, err)
	n.puller, err = images.New(images.Options{Records: r, MaxParallel: 2, BackoffInitial: time.Second,
		BackoffMax: time.Minute})
	require.NoError(t, err)
}

// answer is the answer of the registry to a pull.
func (n *tenants) answer(image, user string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if strings.HasPrefix(image, "r.io/private") && !n.accepts[user] {
		return errors.New("denied")
	}
	if n.pulled[image] == nil {
		n.pulled[image] = map[string]bool{}
	}
	n.pulled[image][user] = true
	return nil
}

// ensure requests an image for a pod of the user, and checks the answer.
func (n *tenants) ensure(t *testing.T, user, image string, policy v1.PullPolicy) error {
	var secrets []v1.Secret
	if user != "" {
		secrets = []v1.Secret{secret(user, "r.io", user)}
	}
	got, err := n.puller.Ensure(t.Context(), request(n.registry, "pod-"+user, image, policy, secrets...))
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		var e *runtime.ImageError
		if !errors.As(err, &e) {
			n.errs = append(n.errs, fmt.Errorf("%q has the error %w for %s", user, err, image))
		}
		return err
	}
	who := n.pulled[image]
	switch {
	case got.ID != "id-"+image:
		n.errs = append(n.errs, fmt.Errorf("%s is %s", image, got.ID))
	case image == preloaded && who == nil:
	case who[user], who[""]: // a pull without a credential permits all
	default:
		n.errs = append(n.errs, fmt.Errorf("%q has %s with the policy %s, which only %v have pulled", user,
			image, policy, who))
	}
	return nil
}

// remove removes an image, as a collection does. Who has pulled it keeps the right to this content for a while.
func (n *tenants) remove(image string) {
	n.registry.mu.Lock()
	delete(n.present, image)
	n.registry.mu.Unlock()
}

func (n *tenants) list() runtime.ImageList {
	n.registry.mu.Lock()
	defer n.registry.mu.Unlock()
	var list runtime.ImageList
	for image := range n.present {
		list.Images = append(list.Images, runtime.Image{ID: "id-" + image, Tags: []string{image}})
	}
	return list
}

// Tenants request images with secrets that the registry accepts for a while, agents end and begin, images are removed:
// no tenant has an image that the registry has not given to it, no image is pulled twice at the same time, and who may
// have an image gets it.
func TestTenants(t *testing.T) {
	root, runs := t.TempDir(), 0
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) { // a bubble has no Deadline
			runs++
			n := &tenants{registry: newRegistry(preloaded), accepts: map[string]bool{"ann": true},
				pulled: map[string]map[string]bool{}}
			n.takes, n.fails = time.Second, n.answer
			dir := filepath.Join(root, strconv.Itoa(runs))
			n.restart(rt, dir)
			names := []string{private1, private2, public, preloaded}
			for range rapid.IntRange(1, 12).Draw(rt, "steps") {
				switch rapid.IntRange(0, 5).Draw(rt, "step") {
				case 0:
					n.restart(rt, dir)
				case 1:
					user := rapid.SampledFrom(modelUsers[1:]).Draw(rt, "user")
					n.accepts[user] = !n.accepts[user]
				case 2:
					n.remove(rapid.SampledFrom(names).Draw(rt, "removed"))
					n.puller.Listed(n.list())
				default:
					var wg sync.WaitGroup
					for range rapid.IntRange(1, 8).Draw(rt, "requests") {
						user := rapid.SampledFrom(modelUsers).Draw(rt, "user")
						image := rapid.SampledFrom(names).Draw(rt, "image")
						policy := rapid.SampledFrom([]v1.PullPolicy{v1.PullAlways, v1.PullIfNotPresent,
							v1.PullNever}).Draw(rt, "policy")
						after := time.Duration(rapid.IntRange(0, 3000).Draw(rt, "ms")) * time.Millisecond
						wg.Go(func() {
							time.Sleep(after)
							_ = n.ensure(t, user, image, policy)
						})
					}
					wg.Wait()
				}
				time.Sleep(time.Duration(rapid.IntRange(0, 20).Draw(rt, "s")) * time.Second)
			}
			require.LessOrEqual(rt, n.most, 2)
			time.Sleep(time.Hour) // no back-off is left
			for _, user := range modelUsers {
				for _, image := range names {
					if err := n.ensure(t, user, image, v1.PullIfNotPresent); err != nil &&
						(n.accepts[user] || image == public || image == preloaded) {
						rt.Errorf("%q does not get %s: %v", user, image, err)
					}
				}
			}
			require.Empty(rt, n.errs)
			calls := n.take()
			require.False(rt, slices.ContainsFunc(calls, func(c string) bool { return strings.HasPrefix(c, "twice") }),
				"%v", calls)
		})
	})
}
