package check

import (
	"reflect"
	"strings"
	"unicode"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/host"
)

// Settings returns a finding for each setting that was given, and for each error of [config.Parse]. s
// is nil if the configuration could not be read.
func Settings(s *config.Settings, err error) (out []Finding) {
	for _, err := range each(err) {
		setting, why := about(err.Error())
		out = append(out, Finding{
			Area: AreaSettings, Setting: setting, Verdict: Refused, Why: why,
			Do: "change it; the agent does not start with it", Blocks: true,
		})
	}
	if s == nil {
		return out
	}
	explained := map[string]bool{}
	for _, g := range s.Given {
		f := Finding{Area: AreaSettings, Setting: g.Name, Verdict: Acts}
		switch g.Less {
		case "":
		case config.Unknown:
			f.Verdict, f.Why, f.Do = Ignored, g.Less, "correct its name, or remove it"
			if near := fieldsLike(g.Name); len(near) > 0 {
				f.Do += "; did you mean " + strings.Join(near, " or ") + "?"
			}
		case config.Repeated:
			f.Why, f.Do = g.Less, "keep one of them"
		default:
			e := explain(g.Name)
			f.Verdict, f.Why, f.Do, f.Blocks = Ignored, e.matters, e.do, e.security
			if g.Less != config.NoEffect {
				f.Why = g.Less // it says more
			}
		}
		explained[g.Less], explained[g.Warning()] = true, true
		out = append(out, f)
	}
	for _, w := range s.Warnings {
		if !explained[w] {
			setting, why := about(w)
			out = append(out, Finding{Area: AreaSettings, Setting: setting, Verdict: Acts, Why: why})
		}
	}
	return out
}

// fieldsLike returns the fields of a configuration, at any depth, with a name like the last one of the path.
func fieldsLike(path string) []string {
	var all []string
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice:
			add(t.Elem())
		case reflect.Struct:
			for f := range t.Fields() {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if name != "" {
					all = append(all, name)
				}
				add(f.Type)
			}
		}
	}
	add(reflect.TypeFor[config.KubeletConfiguration]())
	return config.Near(path[strings.LastIndex(path, ".")+1:], all)
}

// Machine returns what the agent would set, and what of the machine it would refuse.
func Machine(plan host.Plan) (out []Finding) {
	for _, err := range plan.Refused {
		setting, why := about(err.Error())
		out = append(out, Finding{Area: AreaMachine, Setting: setting, Verdict: Refused, Why: why,
			Do: "a kubelet does not start either", Blocks: true})
	}
	for _, w := range plan.Warnings {
		out = append(out, Finding{Area: AreaMachine, Setting: AreaMachine, Verdict: Acts, Why: w})
	}
	for _, w := range plan.Writes {
		out = append(out, Finding{Area: AreaMachine, Setting: w.String(), Verdict: Acts,
			Why: "is set when the agent starts"})
	}
	return out
}

// each returns the errors that were joined.
func each(err error) (all []error) {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, err := range joined.Unwrap() {
		all = append(all, each(err)...)
	}
	return all
}

// about returns the setting that an error or a warning is about, which is its first word, and the text
// without it if a colon follows.
func about(text string) (setting, why string) {
	end := strings.IndexFunc(text, func(r rune) bool { return unicode.IsSpace(r) || r == ':' || r == ',' })
	if end < 0 {
		return text, text
	}
	if why, ok := strings.CutPrefix(text[end:], ": "); ok {
		return text[:end], why
	}
	return text[:end], text
}
