package cri

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// If images are not collected, nobody lists them, and pods use ever new ones.
func TestImageUsesAreBounded(t *testing.T) {
	var u imageUses
	held := u.lease(runtime.PodRef{UID: "held"})
	_, err := held.hold(t.Context(), "held")
	require.NoError(t, err)
	before := u.listing()
	for n := range 3 * maxImagesUsed {
		l := u.lease(runtime.PodRef{UID: "u"})
		_, err := l.hold(t.Context(), fmt.Sprint("image ", n))
		require.NoError(t, err)
		l.close()
	}
	u.ended("other", time.Now())
	assert.LessOrEqual(t, len(u.images), maxImagesUsed)

	removes := func(id string, listed runtime.Mark) error {
		return u.remove(t.Context(), id, listed, func() error { return nil })
	}
	assert.ErrorIs(t, removes("image 0", before), runtime.ErrImageInUse, "it was held after the list")
	assert.NoError(t, removes("image 0", u.listing()))
	assert.ErrorIs(t, removes("held", u.listing()), runtime.ErrImageInUse)
	held.close()
	assert.NoError(t, removes("held", u.listing()))
}
