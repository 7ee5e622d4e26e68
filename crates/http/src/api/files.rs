//! `GET`, `HEAD` and `PUT /hosts/HOST/files/PATH`: the exact content of a file of a host, streamed
//! in both directions.

use std::io;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{BoxStream, Stream, StreamExt, try_unfold, unfold};
use http_body_util::BodyExt;
use serde::Deserialize;
use tokio::time::timeout;
use tokio_util::io::StreamReader;

use super::conditions::{Conditions, range_applies};
use super::range::{not_satisfiable, range_of, span};
use crate::file_address::FileAddress;
use crate::reject;
use crate::status::HttpFailure;
use sshjobs_core::jobs::{
    Attributes, Digest, ExpectedContent, FileKind, FileSource, FilesError, HostFiles, HostPath,
    PutOptions, RemotePath,
};
use sshjobs_wire::{Code, Error, Service, parse_become, parse_mode};

/// Time limit for the next piece of a request body.
const PIECE_TIME: Duration = Duration::from_secs(60);

/// As whom a file is read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileReadParams {
    #[serde(rename = "become")]
    becomes: Option<String>,
    become_method: Option<String>,
}

/// How a file is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileWriteParams {
    #[serde(rename = "become")]
    becomes: Option<String>,
    become_method: Option<String>,
    mode: Option<String>,
    #[serde(default)]
    parents: bool,
    #[serde(default)]
    backup: bool,
    #[serde(default)]
    in_place: bool,
}

/// Announced size up to which a file is read before the answer begins, because the size may be wrong.
const MOST_READ_FIRST: u64 = 64 << 10;
/// Maximum bytes of such a file that are answered with their length.
const MOST_WITHOUT_SIZE: u64 = 1 << 20;

/// The content of a file, or of the part that a Range selects.
pub(crate) async fn get(
    Extension(service): Extension<Service>,
    uri: Uri,
    reading: Result<Query<FileReadParams>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, HttpFailure> {
    let address = FileAddress::parse(&uri)?;
    let Query(reading) = reading.map_err(|error| reject::bad_address(&error.body_text()))?;
    let becomes = parse_become(reading.becomes.as_deref(), reading.become_method.as_deref())?;
    let service = service.with_context(|context| context.becomes = becomes);
    let host = address.host.as_str();
    let files = service.library().files_at(address.on_host()).await.map_err(Error::from)?;
    let path = files.expand(&address.path).await.map_err(|error| file_error(host, error))?;
    let found = files.stat(&path).await.map_err(|error| file_error(host, error))?;
    match found.kind() {
        FileKind::File => {}
        FileKind::Directory => return Err(file_error(host, FilesError::IsDirectory(path)).into()),
        FileKind::Symlink | FileKind::Other => {
            return Err(file_error(host, FilesError::NotAFile(path)).into());
        }
    }
    let announced = found.size.unwrap_or(0);
    // Files of /proc announce no size, and those of /sys a page.
    let small = if announced <= MOST_READ_FIRST {
        let read = files.read_piece(&path, 0, MOST_WITHOUT_SIZE).await;
        Some(read.map_err(|error| file_error(host, error))?)
    } else {
        None
    };
    let total = match small {
        Some(small) if small.bytes.len() as u64 != announced => {
            return without_size(files, &path, host, (small.bytes, small.has_more)).await;
        }
        Some(_) | None => announced,
    };
    let tag = tag_of(&files, &path, &found).await.map_err(|error| file_error(host, error))?;
    let conditions = Conditions::of(&headers);
    if !conditions.allows(Some(&tag)) {
        return Err(precondition_failed());
    }
    if conditions.excludes(Some(&tag)) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    let range = if range_applies(&headers, &tag) {
        range_of(&headers)
    } else {
        None
    };
    let Some((span, is_part)) = span(range, 0, total, false) else {
        return Ok(not_satisfiable(total));
    };
    let end = span.end.unwrap_or(total);
    let length = end - span.start;
    let pieces = files
        .pieces(&path, span.start, Some(length))
        .await
        .map_err(|error| file_error(host, error))?;

    let mut response = Response::new(Body::from_stream(held(files, pieces)));
    if is_part {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    let headers = response.headers_mut();
    if is_part {
        let range = format!("bytes {}-{}/{total}", span.start, end - 1);
        headers.insert(header::CONTENT_RANGE, header_value(&range)?);
    }
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CONTENT_LENGTH, length.into());
    headers.insert(header::ETAG, header_value(&tag)?);
    if let Some(times) = found.times {
        let modified = std::time::UNIX_EPOCH + Duration::from_secs(times.modified.into());
        let modified = httpdate::fmt_http_date(modified);
        headers.insert(header::LAST_MODIFIED, header_value(&modified)?);
    }
    Ok(response)
}

/// A file whose content is not as long as its host has announced. Its parts can't be requested, and it has no tag. `has_more`:
/// whether it continues after its beginning.
async fn without_size(
    files: HostFiles,
    path: &RemotePath,
    host: &str,
    (beginning, has_more): (Bytes, bool),
) -> Result<Response, HttpFailure> {
    let body = if has_more {
        let pieces = files.pieces(path, 0, None).await.map_err(|error| file_error(host, error))?;
        Body::from_stream(held(files, pieces))
    } else {
        Body::from(beginning)
    };
    let kind = HeaderValue::from_static("application/octet-stream");
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

/// Writes a file at once: readers see the old content or the new one.
pub(crate) async fn put(
    Extension(service): Extension<Service>,
    uri: Uri,
    writing: Result<Query<FileWriteParams>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, HttpFailure> {
    let address = FileAddress::parse(&uri)?;
    let Query(writing) = writing.map_err(|error| reject::bad_address(&error.body_text()))?;
    let becomes = parse_become(writing.becomes.as_deref(), writing.become_method.as_deref())?;
    let service = service.with_context(|context| context.becomes = becomes);
    for header in [header::CONTENT_RANGE, header::CONTENT_ENCODING] {
        // RFC 9110, section 14.5: a part must not be stored as if it were the whole.
        if headers.contains_key(&header) {
            let message = format!("{header} is not supported");
            return Err(Error::invalid(message, "send the whole file, as it is").into());
        }
    }
    let options = PutOptions {
        mode: writing.mode.as_deref().map(parse_mode).transpose()?,
        parents: writing.parents,
        backup: writing.backup,
        in_place: writing.in_place,
        expected: expected(&service, &address, &Conditions::of(&headers)).await?,
        ..PutOptions::default()
    };
    let path = HostPath {
        host: &address.host,
        path: &address.path,
    };
    let put = service.put_content(path, content(body), &options).await;
    let reply = put.map_err(|error| {
        // 409 for the verb put, which has no If-None-Match.
        if error.code == Code::FileExists {
            return HttpFailure::with(StatusCode::PRECONDITION_FAILED, error);
        }
        error.into()
    })?;
    let status = match reply.change.as_deref() {
        Some("created") => StatusCode::CREATED,
        _ => StatusCode::OK,
    };
    let tag = reply.sha256.as_deref().map(|digest| format!("\"{digest}\""));
    let mut response = (status, axum::Json(reply)).into_response();
    if let Some(tag) = tag {
        response.headers_mut().insert(header::ETAG, header_value(&tag)?);
    }
    Ok(response)
}

/// Explains an error about a file of a host.
fn file_error(host: &str, error: FilesError) -> Error {
    Error::from(sshjobs_core::jobs::Error::from(error)).about(host)
}

/// The entity tag of a file: the digest of its content or, where the host has no tool for that, a
/// weak one of its size and time.
async fn tag_of(
    files: &HostFiles,
    path: &RemotePath,
    found: &Attributes,
) -> Result<String, FilesError> {
    let size = found.size.unwrap_or(0);
    Ok(match files.digest(path, size).await? {
        Some(digest) => format!("\"{digest}\""),
        None => {
            let modified = found.times.map_or(0, |times| times.modified);
            format!("W/\"{size}-{modified}\"")
        }
    })
}

/// The content that a write may replace, by its conditions.
async fn expected(
    service: &Service,
    address: &FileAddress,
    conditions: &Conditions,
) -> Result<ExpectedContent, HttpFailure> {
    if *conditions == Conditions::default() {
        return Ok(ExpectedContent::Anything);
    }
    let host = address.host.as_str();
    let files = service.library().files(host).await.map_err(Error::from)?;
    let path = files.expand(&address.path).await.map_err(|error| file_error(host, error))?;
    let found = files.find(&path).await.map_err(|error| file_error(host, error))?;
    let tag = match &found {
        Some(found) => {
            Some(tag_of(&files, &path, found).await.map_err(|error| file_error(host, error))?)
        }
        None => None,
    };
    if !conditions.allows(tag.as_deref()) || conditions.excludes(tag.as_deref()) {
        return Err(precondition_failed());
    }
    // Checked again under a lock when the file is replaced.
    let digest = tag.as_deref().map(|tag| tag.trim_matches('"').parse::<Digest>());
    Ok(match digest {
        None => ExpectedContent::NoFile,
        Some(Ok(digest)) => ExpectedContent::Digest(digest),
        // A weak tag does not identify the content.
        Some(Err(_)) => ExpectedContent::Anything,
    })
}

/// The body of a request as it arrives.
fn content(body: Body) -> FileSource {
    let pieces = try_unfold(body, async |mut body| {
        loop {
            let Ok(frame) = timeout(PIECE_TIME, body.frame()).await else {
                return Err(io::Error::other(format!(
                    "nothing has arrived for {PIECE_TIME:?}"
                )));
            };
            let Some(frame) = frame else { return Ok(None) };
            // Trailers are ignored.
            if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
                return Ok(Some((data, body)));
            }
        }
    });
    FileSource::Stream(Box::pin(StreamReader::new(Box::pin(pieces))))
}

/// The pieces of a file, with the connection that they come from.
fn held(
    files: HostFiles,
    pieces: BoxStream<'static, Result<Bytes, FilesError>>,
) -> impl Stream<Item = Result<Bytes, FilesError>> {
    unfold((files, pieces), async |(files, mut pieces)| {
        let piece = pieces.next().await?;
        Some((piece, (files, pieces)))
    })
}

fn precondition_failed() -> HttpFailure {
    let error = Error::new(
        Code::ChangedMeanwhile,
        "the file is not the one that the request expects",
        "read it again: ETag is the SHA-256 of its content",
    );
    HttpFailure::with(StatusCode::PRECONDITION_FAILED, error)
}

fn header_value(text: &str) -> Result<HeaderValue, Error> {
    text.parse().map_err(|_| reject::bad_address(text))
}
