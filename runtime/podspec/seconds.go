package podspec

import (
	"math"
	"time"
)

// MaxSeconds is the largest number of seconds that [Seconds] converts, about 146 years. It is half
// of what a [time.Duration] can hold, so that a sum with another duration does not overflow.
const MaxSeconds = int64(math.MaxInt64/time.Second) / 2

// Seconds returns n seconds. What is beyond [MaxSeconds] or -MaxSeconds counts as that: multiplied, it
// would overflow and become any other duration.
func Seconds(n int64) time.Duration {
	return time.Duration(min(max(n, -MaxSeconds), MaxSeconds)) * time.Second
}
