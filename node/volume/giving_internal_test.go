package volume

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// It takes 30 s until there is an event about a volume that is being given to a group, then there is one a minute.
func TestGivingAVolumeTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		messages := make(chan string, 10)
		var files atomic.Int64
		stop := watchGiving("/disk", &files, func(message string) { messages <- message })
		time.Sleep(29 * time.Second)
		assert.Empty(t, messages)
		time.Sleep(2 * time.Second)
		first := "Setting volume ownership for /disk is taking longer than expected, consider using OnRootMismatch - " +
			"https://kubernetes.io/docs/tasks/configure-pod-container/security-context/" +
			"#configure-volume-permission-and-ownership-change-policy-for-pods"
		assert.Equal(t, first, <-messages)
		files.Store(7)
		time.Sleep(2 * time.Minute)
		const further = "Setting volume ownership for /disk, processed 7 files."
		assert.Equal(t, further, <-messages)
		assert.Equal(t, further, <-messages)
		assert.Empty(t, messages)
		stop()
		time.Sleep(5 * time.Minute)
		assert.Empty(t, messages)
	})
}
