package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// loggingFields are the settings of the agent's log that have an effect.
const loggingFields = "logging.format logging.verbosity logging.vmodule"

// The formats of the agent's log.
const (
	formatText = "text"
	formatJSON = "json"
)

// addLoggingFlags binds the flags of the agent's log.
func (s *Settings) addLoggingFlags(fs *pflag.FlagSet) {
	fs.IntVarP(&s.Verbosity, "v", "v", 0, "how much to log: 0 little, 2 each change, 4 for debugging")
	fs.StringVar(&s.Logging.Format, "logging-format", s.Logging.Format,
		"format of the log: text, or json with kubelet's keys")
	fs.Var(modules{&s.Logging.VModule}, "vmodule", "comma-separated list of pattern=N: how much to log from the "+
		"source files of the pattern, by their name without .go, such as pool, or by their path, such as */podworkers/*")
}

// LogsJSON reports whether the log is in JSON.
func (s *Settings) LogsJSON() bool { return s.Logging.Format == formatJSON }

// validateLogging judges as kubelet does, but accepts vmodule for JSON.
func (s *Settings) validateLogging() (errs []error) {
	if f := s.Logging.Format; f != formatText && f != formatJSON {
		errs = append(errs, fmt.Errorf("logging.format %q: must be %q or %q", f, formatText, formatJSON))
	}
	for i, m := range s.Logging.VModule {
		switch field := fmt.Sprintf("logging.vmodule[%d]", i); {
		case m.FilePattern == "":
			errs = append(errs, fmt.Errorf("%s: the pattern is empty", field))
		case strings.ContainsAny(m.FilePattern, "=,"):
			errs = append(errs, fmt.Errorf("%s: the pattern %q must not contain an equal sign or a comma",
				field, m.FilePattern))
		case m.Verbosity > math.MaxInt32:
			errs = append(errs, fmt.Errorf("%s: %d is too large", field, m.Verbosity))
		}
	}
	return errs
}

// modules is the flag --vmodule.
type modules struct{ target *[]VModuleItem }

func (m modules) String() string {
	if m.target == nil {
		return ""
	}
	var list []string
	for _, item := range *m.target {
		list = append(list, fmt.Sprintf("%s=%d", item.FilePattern, item.Verbosity))
	}
	return strings.Join(list, ",")
}

// Set implements [pflag.Value]. As with kubelet, it replaces all.
func (m modules) Set(text string) error {
	list := []VModuleItem{}
	for item := range strings.SplitSeq(text, ",") {
		if item == "" {
			continue
		}
		pattern, level, ok := strings.Cut(item, "=")
		if !ok || pattern == "" {
			return fmt.Errorf("%q: must be pattern=N", item)
		}
		v, err := strconv.ParseUint(level, 10, 31)
		if err != nil {
			return fmt.Errorf("%q: the level is not a number of 0 or more: %w", item, err)
		}
		list = append(list, VModuleItem{FilePattern: pattern, Verbosity: uint32(v)})
	}
	*m.target = list
	return nil
}

// Type implements [pflag.Value].
func (m modules) Type() string { return "pattern=N,..." }
