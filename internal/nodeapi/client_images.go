package nodeapi

import (
	"context"
	"errors"
	"net/url"
)

// Images lists the images that are here.
func (c *Client) Images(ctx context.Context) (list []Image, err error) {
	err = c.call(ctx, "GET", "/berth/v1/images", nil, nil, &list)
	return list, err
}

// PullImage fetches an image; progress is called from the calling goroutine.
func (c *Client) PullImage(ctx context.Context, ref string, progress func(Pull)) (img Image, err error) {
	done := false
	err = each(ctx, c, "POST", "/berth/v1/images/pull", url.Values{"ref": {ref}}, func(p Pull) error {
		switch {
		case p.Error != "":
			return errors.New(p.Error)
		case p.Image != nil:
			img, done = *p.Image, true
		default:
			progress(p)
		}
		return nil
	})
	if err == nil && !done {
		err = ErrCut
	}
	return img, err
}

// ImportImages reads images from a folder or archive; path is absolute.
func (c *Client) ImportImages(ctx context.Context, path string) (list []Image, err error) {
	err = c.call(ctx, "POST", "/berth/v1/images/import", url.Values{"path": {path}}, nil, &list)
	return list, err
}

// RemoveImage takes away a name, or an image with all its names.
func (c *Client) RemoveImage(ctx context.Context, ref string) error {
	return c.call(ctx, "DELETE", "/berth/v1/images/"+url.PathEscape(ref), nil, nil, &struct{}{})
}

// PruneImages removes images that no container uses: those without a tag, or all.
func (c *Client) PruneImages(ctx context.Context, all bool) (p Pruned, err error) {
	q := url.Values{}
	if all {
		q.Set("all", "true")
	}
	err = c.call(ctx, "POST", "/berth/v1/images/prune", q, nil, &p)
	return p, err
}
