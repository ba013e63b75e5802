package crilog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The names of rotated files, as kubelet's: the log, a dot, a time in the local time zone, and suffixes of compressed
// and of temporary files.
const (
	timeFormat = "20060102-150405"
	// Compressed is the suffix of a compressed file, in the format of gzip, and Temporary that of one that is being
	// written.
	Compressed = ".gz"
	Temporary  = ".tmp"
	// maxNumber is the greatest number of a rotation within one second.
	maxNumber = 999
)

// Rotated is a file of a log that was rotated.
type Rotated struct {
	// Name is that of the file without the suffix [Compressed]. The name of a later file is greater.
	Name       string
	Compressed bool
}

// File returns the name of the file.
func (r Rotated) File() string {
	if r.Compressed {
		return r.Name + Compressed
	}
	return r.Name
}

// cutName returns the time and the number in the name of a rotated file of the log.
func cutName(log, name string) (at string, number int, ok bool) {
	suffix, ok := strings.CutPrefix(name, log+".")
	if !ok {
		return "", 0, false
	}
	at, digits, numbered := strings.Cut(suffix, "_")
	if _, err := time.Parse(timeFormat, at); err != nil || len(at) != len(timeFormat) || at >= "9999" {
		// NextRotated needs a later time
		return "", 0, false
	}
	if !numbered {
		return at, 0, true
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	return at, int(n), err == nil && len(digits) == 3 && n > 0
}

// FindRotated finds the rotated files of a log among the names in its directory, the oldest first. Leftovers are what
// an interrupted compression has left: temporary files, and files that have a compressed copy. Other names are ignored.
func FindRotated(log string, names []string) (files []Rotated, leftovers []string) {
	all := map[string]bool{} // whether it is compressed, by name
	for _, file := range names {
		name, temporary := strings.CutSuffix(file, Temporary)
		name, gz := strings.CutSuffix(name, Compressed)
		_, _, ok := cutName(log, name)
		switch other, twice := all[name]; {
		case !ok || temporary && gz:
		case temporary:
			leftovers = append(leftovers, file)
		case twice && other != gz:
			leftovers = append(leftovers, name)
			all[name] = true
		default:
			all[name] = gz
		}
	}
	for name, gz := range all {
		files = append(files, Rotated{Name: name, Compressed: gz})
	}
	slices.SortFunc(files, func(a, b Rotated) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(leftovers)
	return files, leftovers
}

// NextRotated returns the name that a log is renamed to: with the time, or with a number if that is not after the last
// rotated file, as after a second rotation within one second, or when the clock was set back. last is "" if there is
// none.
func NextRotated(log, last string, now time.Time) string {
	name := log + "." + now.Format(timeFormat)
	at, number, ok := cutName(log, last)
	switch {
	case !ok || name > last:
		return name
	case number < maxNumber:
		return fmt.Sprintf("%s.%s_%03d", log, at, number+1)
	}
	t, _ := time.Parse(timeFormat, at) // cutName has parsed it
	return log + "." + t.Add(time.Second).Format(timeFormat)
}
