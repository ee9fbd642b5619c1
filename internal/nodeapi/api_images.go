package nodeapi

import (
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/berth-run/berth/internal/cri/imagestore"
)

// Image is an image that is on the node.
type Image struct {
	ID        string    `json:"id"`
	Tags      []string  `json:"tags,omitempty"`
	Digests   []string  `json:"digests,omitempty"`
	SizeBytes int64     `json:"sizeBytes"`
	Pinned    bool      `json:"pinned,omitempty"`
	Created   time.Time `json:"created"` // since when it is here
}

// Pull is a line of a pull: how far it is; the last has an image or an error.
type Pull struct {
	Phase      string `json:"phase,omitempty"`
	DoneBytes  int64  `json:"doneBytes,omitempty"`
	TotalBytes int64  `json:"totalBytes,omitempty"` // 0 while not known
	Image      *Image `json:"image,omitempty"`
	Error      string `json:"error,omitempty"`
}

// Pruned is what was removed.
type Pruned struct {
	Images     []string `json:"images,omitempty"`
	FreedBytes int64    `json:"freedBytes"`
}

func imageOf(i imagestore.Image) Image {
	return Image{ID: i.ID, Tags: i.Tags, Digests: i.Digests, SizeBytes: i.Size, Pinned: i.Pinned, Created: i.Created}
}

func imagesOf(list []imagestore.Image) []Image {
	images := make([]Image, 0, len(list))
	for _, i := range list {
		images = append(images, imageOf(i))
	}
	return images
}

func (s *Server) images(w http.ResponseWriter, r *http.Request) error {
	list, err := s.cfg.Agent.Images(r.Context())
	if err != nil {
		return err
	}
	return answer(w, imagesOf(list))
}

func (s *Server) pullImage(w http.ResponseWriter, r *http.Request) error {
	out := newStream(w)
	if err := out.begin(); err != nil {
		return err
	}
	img, err := s.cfg.Agent.PullImage(r.Context(), r.FormValue("ref"), func(p imagestore.Progress) {
		// A client that left cancels the pull by the context.
		_ = out.send(Pull{Phase: string(p.Phase), DoneBytes: p.DoneBytes, TotalBytes: p.TotalBytes})
		_ = out.flush()
	})
	if err != nil {
		return out.send(Pull{Error: err.Error()})
	}
	pulled := imageOf(img)
	return out.send(Pull{Image: &pulled})
}

// importImages reads a path of this machine: the socket is local.
func (s *Server) importImages(w http.ResponseWriter, r *http.Request) error {
	path := r.FormValue("path")
	if !filepath.IsAbs(path) {
		return badRequest{fmt.Errorf("path %q is not absolute", path)}
	}
	list, err := s.cfg.Agent.ImportImages(r.Context(), path)
	if err != nil {
		return err
	}
	return answer(w, imagesOf(list))
}

func (s *Server) removeImage(w http.ResponseWriter, r *http.Request) error {
	if err := s.cfg.Agent.RemoveImage(r.Context(), r.PathValue("ref")); err != nil {
		return err
	}
	return answer(w, struct{}{})
}

func (s *Server) pruneImages(w http.ResponseWriter, r *http.Request) error {
	c, err := s.cfg.Agent.PruneImages(r.Context(), r.FormValue("all") == "true")
	if err != nil {
		return err
	}
	p := Pruned{FreedBytes: c.FreedBytes}
	for _, v := range c.Images {
		p.Images = append(p.Images, v.ID)
	}
	return answer(w, p)
}
