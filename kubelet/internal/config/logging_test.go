package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLogging(t *testing.T) {
	s, err := parsed(t, header)
	require.NoError(t, err)
	assert.False(t, s.LogsJSON())
	assert.Empty(t, s.Logging.VModule)

	const file = header + "logging: {format: json, vmodule: [{filePattern: pleg, verbosity: 4}]}\n"
	s, err = parsed(t, file)
	require.NoError(t, err)
	assert.True(t, s.LogsJSON())
	assert.Equal(t, []VModuleItem{{"pleg", 4}}, s.Logging.VModule)
	assert.Empty(t, s.Warnings)
	fields, err := s.Effective(Detected{})
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"format": "json", "verbosity": 0.0,
		"vmodule": []any{map[string]any{"filePattern": "pleg", "verbosity": 4.0}}}, fields["logging"])

	s, err = parsed(t, file, "--logging-format=text", "--vmodule=pool=2,reconciler=3,")
	require.NoError(t, err)
	assert.False(t, s.LogsJSON())
	assert.Equal(t, []VModuleItem{{"pool", 2}, {"reconciler", 3}}, s.Logging.VModule)
	assert.Equal(t, "pool=2,reconciler=3", s.FlagValues["vmodule"])

	for arg, want := range map[string]string{
		"--logging-format=xml": `logging.format "xml": must be "text" or "json"`,
		"--vmodule=pool":       "must be pattern=N",
		"--vmodule=pool=-1":    "the level is not a number of 0 or more",
	} {
		_, err := parsed(t, header, arg)
		require.ErrorContains(t, err, want)
	}
	for _, list := range []string{`{filePattern: "", verbosity: 1}`, `{filePattern: "a,b", verbosity: 1}`,
		`{filePattern: a, verbosity: 4000000000}`} {
		_, err := parsed(t, header+"logging: {vmodule: ["+list+"]}\n")
		require.ErrorContains(t, err, "logging.vmodule[0]: ")
	}
}
