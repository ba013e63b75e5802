package repository_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// TestIssueForms asserts that GitHub can show the forms: it ignores one that it cannot read.
func TestIssueForms(t *testing.T) {
	forms, err := filepath.Glob(".github/ISSUE_TEMPLATE/*.yml")
	require.NoError(t, err)
	require.Len(t, forms, 3)
	for _, path := range forms {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		if filepath.Base(path) == "config.yml" {
			var config struct {
				BlankIssuesEnabled *bool                               `json:"blank_issues_enabled"`
				ContactLinks       []struct{ Name, URL, About string } `json:"contact_links"`
			}
			require.NoError(t, yaml.UnmarshalStrict(text, &config), path)
			continue
		}
		var form struct {
			Name, Description string
			Labels            []string
			Body              []struct {
				Type, ID   string
				Attributes struct {
					Label, Description, Value, Render string
					Options                           []string
				}
				Validations struct{ Required bool }
			}
		}
		require.NoError(t, yaml.UnmarshalStrict(text, &form), path)
		assert.NotEmpty(t, form.Name, path)
		assert.NotEmpty(t, form.Description, path)
		ids := map[string]bool{}
		for _, element := range form.Body {
			switch element.Type {
			case "markdown":
				assert.NotEmpty(t, element.Attributes.Value, path)
				continue
			case "dropdown":
				assert.NotEmpty(t, element.Attributes.Options, path)
			default:
				assert.Equal(t, "textarea", element.Type, path)
			}
			assert.NotEmpty(t, element.Attributes.Label, path)
			assert.Falsef(t, ids[element.ID] || element.ID == "", "%s: the ID %q", path, element.ID)
			ids[element.ID] = true
		}
	}
}
