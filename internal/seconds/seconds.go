// Package seconds converts numbers of seconds, as the API has them, to durations.
package seconds

import (
	"math"
	"time"
)

// Max is the largest number of seconds that [Duration] converts, about 146 years. It is half
// of what a [time.Duration] can hold, so that a sum with another duration does not overflow.
const Max = int64(math.MaxInt64/time.Second) / 2

// Duration returns n seconds. What is beyond [Max] or -Max counts as that: multiplied, it
// would overflow and become any other duration.
func Duration(n int64) time.Duration { return time.Duration(min(max(n, -Max), Max)) * time.Second }
