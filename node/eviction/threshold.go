package eviction

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Value is an amount, or a part of the capacity.
type Value struct {
	// Quantity is an amount in bytes, inodes or processes. It counts if Part is 0.
	Quantity resource.Quantity
	// Part is a part of the capacity, as in 0.1 for 10 %. It has the precision of kubelet's, so that amounts are
	// the same to the byte.
	Part float32
}

// IsZero reports whether the value is 0.
func (v Value) IsZero() bool { return v.Part == 0 && v.Quantity.IsZero() }

// Of returns the amount for a capacity. An amount that has no int64 is the largest one.
func (v Value) Of(capacity int64) int64 {
	if v.Part != 0 {
		n := float64(capacity) * float64(v.Part)
		if n >= maxAmount {
			return maxAmount
		}
		return int64(n)
	}
	return podspec.Amount("", v.Quantity)
}

// String returns the value as kubelet's settings have it.
func (v Value) String() string {
	if v.Part != 0 {
		return strconv.FormatFloat(float64(v.Part)*100, 'g', 4, 32) + "%"
	}
	return v.Quantity.String()
}

// text returns the amount as kubelet's messages have it.
func (v Value) text(capacity int64) string {
	if v.Part != 0 {
		return resource.NewQuantity(v.Of(capacity), resource.BinarySI).String()
	}
	return v.Quantity.String()
}

// Threshold is a limit of a signal. The node defends itself while less is available.
type Threshold struct {
	Signal Signal
	// Value is what has to be available.
	Value Value
	// GracePeriod is how long less may be available before a pod is evicted. It is 0 for a hard threshold.
	GracePeriod time.Duration
	// MinReclaim is what has to be available above Value once the threshold was met for its grace period.
	MinReclaim Value
}

// Hard reports whether the threshold has no grace period.
func (t Threshold) Hard() bool { return t.GracePeriod == 0 }

// String returns the threshold as in "memory.available<100Mi".
func (t Threshold) String() string { return string(t.Signal) + "<" + t.Value.String() }

// need returns what has to be available, with the minimum reclaim or without.
func (t Threshold) need(capacity int64, reclaiming bool) int64 {
	n := t.Value.Of(capacity)
	if reclaiming {
		more := t.MinReclaim.Of(capacity)
		if n > 0 && more > maxAmount-n {
			return max(n, capacity)
		}
		n = min(n+more, max(n, capacity)) // more than there is cannot become available
	}
	return n
}

// maxAmount is the largest amount.
const maxAmount = math.MaxInt64

// Config has the thresholds as a KubeletConfiguration has them.
type Config struct {
	// Hard and Soft have the values of thresholds by their signals, as in "memory.available": "100Mi" or
	// "nodefs.available": "10%". 0% and 100% mean that there is no threshold. Those of containerfs are ignored, as
	// in kubelet: the file system is that of nodefs or of imagefs, and has its thresholds.
	Hard, Soft map[string]string
	// SoftGracePeriod has a duration for each signal in Soft, as in "1m30s".
	SoftGracePeriod map[string]string
	// MinimumReclaim has minimum reclaims by signal, as amounts or percentages.
	MinimumReclaim map[string]string
	// Allocatable adds the hard threshold of memory.available for allocatableMemory.available. kubelet does so
	// if enforceNodeAllocatable has "pods".
	Allocatable bool
}

// DefaultHard returns the hard thresholds that kubelet has on Linux if none are configured.
func DefaultHard() map[string]string {
	return map[string]string{
		string(MemoryAvailable):   "100Mi",
		string(NodeFsAvailable):   "10%",
		string(NodeFsInodesFree):  "5%",
		string(ImageFsAvailable):  "15%",
		string(ImageFsInodesFree): "5%",
	}
}

// Parse returns the thresholds, those of memory first, and hard ones before soft ones of the same resource.
// The error has all that kubelet refuses.
func Parse(c Config) ([]Threshold, error) {
	var out []Threshold
	var errs []error
	grace, graceErrs := parseEach("evictionSoftGracePeriod", c.SoftGracePeriod, parseGrace)
	reclaim, reclaimErrs := parseEach("evictionMinimumReclaim", c.MinimumReclaim, parseReclaim)
	add := func(field string, texts map[string]string, soft bool) {
		values, problems := parseEach(field, texts, parseValue)
		errs = append(errs, problems...)
		for signal, value := range values {
			t := Threshold{Signal: signal, Value: value, MinReclaim: reclaim[signal]}
			if value.IsZero() { // 0% or 100%
				continue
			}
			if soft {
				var ok bool
				if t.GracePeriod, ok = grace[signal]; !ok && c.SoftGracePeriod[string(signal)] == "" {
					errs = append(errs, fmt.Errorf("evictionSoft %s: evictionSoftGracePeriod must have it, too",
						signal))
				}
			}
			if !signal.onContainerFs() {
				out = append(out, t)
			}
			if c.Allocatable && !soft && signal == MemoryAvailable {
				t.Signal = AllocatableMemoryAvailable
				out = append(out, t)
			}
		}
	}
	add("evictionHard", c.Hard, false)
	add("evictionSoft", c.Soft, true)
	if err := errors.Join(append(append(errs, graceErrs...), reclaimErrs...)...); err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b Threshold) int {
		return cmp.Or(cmp.Compare(a.Signal.pressure(), b.Signal.pressure()), cmp.Compare(a.GracePeriod, b.GracePeriod),
			cmp.Compare(a.Signal, b.Signal), b.Value.Quantity.Cmp(a.Value.Quantity))
	})
	return out, nil
}

// parseEach parses the texts of a field, in the order of their signals.
func parseEach[T any](field string, texts map[string]string, parse func(string) (T, error)) (map[Signal]T, []error) {
	out := map[Signal]T{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		signal := Signal(name)
		if !signal.Valid() {
			errs = append(errs, fmt.Errorf("%s %q: there is no such signal; those of kubelet are %s",
				field, short(name), strings.Join(configurable, ", ")))
			continue
		}
		v, err := parse(texts[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %q: %w", field, signal, short(texts[name]), err))
			continue
		}
		out[signal] = v
	}
	return out, errs
}

// parsePart parses a percentage.
func parsePart(text string) (float32, error) {
	n, err := strconv.ParseFloat(text, 32)
	if err != nil {
		return 0, errors.New("must be a percentage or a quantity")
	}
	return float32(n) / 100, nil
}

// parseValue parses the value of a threshold. Zero means that there is no threshold.
func parseValue(text string) (v Value, err error) {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		if v.Part, err = parsePart(percent); err != nil {
			return v, err
		}
		if !(v.Part >= 0 && v.Part <= 1) {
			return v, errors.New("must be between 0% and 100%")
		}
		if v.Part == 1 {
			v.Part = 0
		}
		return v, nil
	}
	if v.Quantity, err = podspec.ParseQuantity(text); err != nil {
		return v, err
	}
	if v.Quantity.Sign() <= 0 {
		return v, errors.New("must be above 0")
	}
	return v, nil
}

func parseGrace(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = errors.New("must not be negative")
	}
	return d, err
}

func parseReclaim(text string) (v Value, err error) {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		if v.Part, err = parsePart(percent); err == nil && (!(v.Part > 0) || math.IsInf(float64(v.Part), 0)) {
			err = errors.New("must be above 0%")
		}
		return v, err
	}
	if v.Quantity, err = podspec.ParseQuantity(text); err == nil && v.Quantity.Sign() < 0 {
		err = errors.New("must not be negative")
	}
	return v, err
}

// amountText returns an amount of a resource as kubelet's messages have it.
func amountText(name v1.ResourceName, n int64) string {
	format := resource.BinarySI
	if name == resourceInodes || name == resourcePIDs {
		format = resource.DecimalSI
	}
	return resource.NewQuantity(n, format).String()
}

// short returns a text of a setting for an error.
func short(text string) string {
	if len(text) > 64 {
		return text[:64] + "…"
	}
	return text
}
