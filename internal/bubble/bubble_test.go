package bubble

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSkipIsVisible(t *testing.T) {
	var skipped, passed *testing.T
	t.Run("skipped", func(t *testing.T) {
		skipped = t
		Test(t, func(t *testing.T) { t.Skip("the subject does not have it") })
		t.Error("a test that is skipped goes on")
	})
	t.Run("passed", func(t *testing.T) {
		passed = t
		Test(t, func(*testing.T) { time.Sleep(time.Hour) })
	})
	assert.True(t, skipped.Skipped())
	assert.False(t, passed.Skipped())
}
