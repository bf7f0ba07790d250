package view

import (
	"bytes"
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"
)

//go:embed stories
var stories embed.FS

// Stories returns the names of the built-in stories. Some are calls of the homework's engine. In the others, requests
// are scheduled by the rules of vLLM, of the paper's system or of Orca.
func Stories() (names []string) {
	traces, err := stories.ReadDir("stories")
	if err != nil {
		panic(err) // the stories are embedded
	}
	for _, e := range traces {
		if name, found := strings.CutSuffix(e.Name(), ".trace"); found {
			names = append(names, name)
		}
	}
	for _, s := range servingStories() {
		names = append(names, s.Name)
	}
	return names
}

// Story plays a built-in story.
func Story(name string) (*Scene, error) {
	for _, s := range servingStories() {
		if s.Name == name {
			return s.play()
		}
	}
	if !slices.Contains(Stories(), name) {
		return nil, fmt.Errorf("there is no story %q: there are %s", name, strings.Join(Stories(), ", "))
	}
	text, err := stories.ReadFile(path.Join("stories", name+".trace"))
	if err != nil {
		return nil, err
	}
	r, err := Course(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	s := Alone(r)
	s.Name = name
	return s, nil
}
