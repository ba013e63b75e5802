package check

import (
	"strings"
	"unicode"
)

// explanation is why it matters that a setting has no effect, and what to do about it.
type explanation struct {
	matters, do string
	// security is true if pods or the node are less protected without the setting.
	security bool
}

// explain returns the explanation of a field, by its path, or of a flag.
func explain(name string) explanation {
	all := explanations()
	if flag, isFlag := strings.CutPrefix(name, "--"); isFlag {
		if field, ok := flagFields()[flag]; ok {
			name = field
		} else {
			name = camel(flag)
		}
	}
	for path := name; path != ""; path = path[:max(0, strings.LastIndex(path, "."))] {
		if e, ok := all[path]; ok {
			return e
		}
	}
	return explanation{matters: "it is not implemented"}
}

// camel returns the name of the field that most flags stand for: evictionSoft for eviction-soft.
func camel(flag string) string {
	var b strings.Builder
	up := false
	for _, r := range flag {
		if r == '-' {
			up = true
			continue
		}
		if up {
			r = unicode.ToUpper(r)
		}
		b.WriteRune(r)
		up = false
	}
	return b.String()
}

// flagFields are the flags whose field has another name.
func flagFields() map[string]string {
	return map[string]string{
		"log-flush-frequency": "logging", "log-json-info-buffer-size": "logging",
		"log-text-info-buffer-size": "logging", "log-json-split-stream": "logging",
		"log-text-split-stream": "logging", "feature-gates": "featureGates", "system-cgroups": "systemCgroups",
	}
}

// explanations are those of the settings that have no effect, by the path of the field or the name of
// the flag in the same form. That of a path is also that of the fields below it.
func explanations() map[string]explanation {
	const none = "no pod depends on it"
	plain := explanation{matters: none}
	return map[string]explanation{
		"kernelMemcgNotification":               {matters: "the kernel's signals about memory are always used"},
		"experimentalAllocatableIgnoreEviction": {matters: "what evictionHard keeps free is never allocatable"},
		"volumeStatsAggPeriod":                  {matters: "the usage of volumes is measured when it is asked for"},
		"volumePluginDir": {matters: "flex volumes are not supported: pods with them " +
			"cannot start", do: "use other volumes"},
		"configMapAndSecretChangeDetectionStrategy": {matters: "changes are always found by watches"},
		"cpuManagerReconcilePeriod":                 {matters: "the CPUs of running containers are changed at once"},
		"logging":                                   {matters: "the log is not buffered, and has one stream"},
		"tracing":                                   {matters: "no traces are sent"},
		"showHiddenMetricsForVersion":               {matters: "there are no hidden metrics"},
		// nor in a kubelet
		"hairpinMode": plain, "iptablesMasqueradeBit": plain, "iptablesDropBit": plain,
		"experimentalMounterPath": plain, "windowsService": plain,
		"windowsPriorityclass": plain,
		"lockFile":             {matters: "the root directory has a lock of its own"},
		"exitOnLockContention": {matters: "the agent does not make room for another one"},
	}
}
