package images_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// rights receives what is measured about the right to images.
type rights struct {
	mu   sync.Mutex
	seen []string
}

func (r *rights) add(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, what)
}

func (r *rights) Measure(v runtime.Measurement) {
	switch v := v.(type) {
	case images.Verified:
		r.add(string(v.Decision))
	case images.Recorded:
		r.add(fmt.Sprintf("%d intents, %d records", v.Intents, v.Records))
	}
}

func TestRightsAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry("preloaded:1")
		kept, _ := newRecords(t)
		m := &rights{}
		p, err := images.New(images.Options{Records: kept, Observer: runtime.Observer{NonBlocking: true,
			Measure: m.Measure}})
		require.NoError(t, err)
		ensure := func(pod, image string, secrets ...v1.Secret) error {
			_, err := p.Ensure(t.Context(), request(r, pod, image, v1.PullIfNotPresent, secrets...))
			return err
		}
		own := secret("s", "r.io", "me")
		p.Listed(runtime.ImageList{})
		require.NoError(t, ensure("web", "preloaded:1"))
		require.NoError(t, ensure("owner", "r.io/app:1", own)) // absent, so that there is nothing to verify
		require.NoError(t, ensure("owner", "r.io/app:1", own))
		r.fails = func(string, string) error { return assert.AnError }
		require.Error(t, ensure("other", "r.io/app:1"))
		synctest.Wait()
		assert.Equal(t, []string{
			"0 intents, 0 records", "credentialPolicyAllowed",
			"1 intents, 0 records", "0 intents, 1 records", "credentialRecordFound",
			"mustAuthenticate", "1 intents, 1 records", "0 intents, 1 records",
		}, m.seen)
	})
}
