package pleg_test

import (
	"testing"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/pleg/plegtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestGenericConforms(t *testing.T) {
	plegtest.Suite(t,
		plegtest.Factory{New: func(_ *testing.T, rt *plegtest.Runtime, cache *runtime.Cache) pleg.Generator {
			return pleg.NewGeneric(rt, cache, pleg.Options{})
		}})
}

func TestEventedConforms(t *testing.T) {
	for name, set := range map[string]func(*plegtest.State){
		"announced stream":   func(*plegtest.State) {},
		"unannounced stream": func(s *plegtest.State) { s.Stream.Unannounced = true },
		"no stream":          func(s *plegtest.State) { s.Stream.Refuses = errNoStream },
	} {
		t.Run(name, func(t *testing.T) {
			plegtest.Suite(t,
				plegtest.Factory{New: func(_ *testing.T, rt *plegtest.Runtime, cache *runtime.Cache) pleg.Generator {
					rt.Do(set)
					return pleg.NewEvented(rt, cache, pleg.EventedOptions{})
				}})
		})
	}
}
