//go:build !linux

package threads

import (
	"context"
	"time"
)

// findLimits returns none: they are not known on this system.
func findLimits(_, _ string) []limit { return nil }

func awaitLimit(ctx context.Context, _ []limit, _ time.Duration) (limit, error) {
	<-ctx.Done()
	return limit{}, ctx.Err()
}
