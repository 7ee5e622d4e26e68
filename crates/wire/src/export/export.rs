//! The export of a job: pages of its stored output, each turned into lines of the wanted format.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::Stream as Pages;
use futures_util::stream::try_unfold;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::asciicast::{Asciicast, CastHeader, CastVersion, json_line};
use crate::error::Error;
use crate::{Code, Format, RenderArg, Service, TailRequest};
use sshjobs_core::jobs::{
    Phase, ReadableJob, RecordedPiece, RecordingPlace, Resize, StoredPieces, Stream, TerminalSize,
    Verb, timestamp_of,
};

/// The format of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum ExportFormat {
    /// A recording that every version of asciinema and its web player show.
    #[default]
    #[serde(rename = "asciicast-v2")]
    AsciicastV2,
    /// A recording for asciinema 3, with the exit status.
    #[serde(rename = "asciicast-v3")]
    AsciicastV3,
    /// The lines without control sequences.
    #[serde(rename = "text")]
    Text,
    /// A line of JSON for each line: number, stream, time and text.
    #[serde(rename = "json")]
    Json,
}

impl ExportFormat {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::AsciicastV2, Self::AsciicastV3, Self::Text, Self::Json];

    /// The name on the wire and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AsciicastV2 => "asciicast-v2",
            Self::AsciicastV3 => "asciicast-v3",
            Self::Text => "text",
            Self::Json => "json",
        }
    }

    /// The media type of a file.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::AsciicastV2 | Self::AsciicastV3 => "application/x-asciicast",
            Self::Text => "text/plain; charset=utf-8",
            Self::Json => "application/jsonl",
        }
    }
}

/// Size of the terminal of a job that had none.
const USUAL: TerminalSize = TerminalSize { cols: 80, rows: 24 };
/// Lines and bytes of a page.
const PAGE_LINES: i64 = 10_000;
const PAGE_BYTES: i64 = 262_144;

impl Service {
    /// Exports the output of a job that is kept now, in pieces. Keys that were typed and other input
    /// are not part of it.
    pub async fn export(
        &self,
        id: &str,
        format: ExportFormat,
    ) -> Result<impl Pages<Item = Result<Bytes, Error>> + Send + 'static, Error> {
        let job = self.readable(Verb::Read, id).await?;
        let pages = match format {
            ExportFormat::AsciicastV2 => Export::Cast(Cast::of(job, CastVersion::V2).await?),
            ExportFormat::AsciicastV3 => Export::Cast(Cast::of(job, CastVersion::V3).await?),
            ExportFormat::Text | ExportFormat::Json => Export::Lines(LineExport {
                service: self.clone(),
                id: id.to_owned(),
                format,
                cursor: 0,
            }),
        };
        Ok(try_unfold(Some(pages), async |pages| {
            let Some(pages) = pages else { return Ok(None) };
            let (text, pages) = match pages {
                Export::Cast(cast) => cast.page().await?,
                Export::Lines(lines) => lines.page().await?,
            };
            Ok::<_, Error>(Some((Bytes::from(text), pages)))
        }))
    }
}

/// The rest of an export.
enum Export {
    Cast(Cast),
    Lines(LineExport),
}

/// The rest of a recording.
struct Cast {
    job: ReadableJob,
    cast: Asciicast,
    /// The header, before the first page.
    header: String,
    /// The next part of the output.
    recording: StoredPieces,
    /// Resizes that are still to come.
    resizes: VecDeque<Resize>,
    /// Number of bytes of each stream so far, to notice what is missing.
    stdout: u64,
    stderr: u64,
}

impl Cast {
    async fn of(job: ReadableJob, version: CastVersion) -> Result<Self, Error> {
        if job.is_fleet() {
            let hint = "export its members one by one (ID/HOST), or use the formats text or json";
            return Err(Error::invalid(
                "the terminals of several hosts are not one recording",
                hint,
            ));
        }
        let recording = first_part(&job).await?;
        let started_at = timestamp_of(job.status().started_at);
        let cast = Asciicast::new(version, job.has_terminal(), started_at);
        let header = cast.header(&CastHeader {
            size: job.terminal_size().unwrap_or(USUAL),
            started_at,
            command: job.command(),
            title: job.label(),
        });
        Ok(Self {
            resizes: job.resizes().into(),
            job,
            cast,
            header,
            recording,
            stdout: 0,
            stderr: 0,
        })
    }

    async fn page(mut self) -> Result<(String, Option<Export>), Error> {
        let mut text = std::mem::take(&mut self.header);
        for piece in std::mem::take(&mut self.recording.pieces) {
            text.push_str(&self.events(&piece));
        }
        match self.recording.next {
            Some(next) => {
                self.recording = part(&self.job, Some(next)).await?;
                Ok((text, Some(Export::Cast(self))))
            }
            None => {
                text.push_str(&self.end());
                Ok((text, None))
            }
        }
    }

    fn events(&mut self, piece: &RecordedPiece) -> String {
        let stream = piece.source.stream;
        let seen = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let missing = piece.position.saturating_sub(*seen);
        *seen = piece.position + piece.bytes.len() as u64;
        let mut text = String::new();
        if missing > 0 {
            let note = format!("{missing} bytes are not kept");
            text.push_str(&self.cast.marker(piece.at, &note));
        }
        while let Some(resize) = self.resizes.front()
            && stream == Stream::Stdout
            && resize.after <= piece.position
        {
            text.push_str(&self.cast.resize(piece.at, resize.size));
            self.resizes.pop_front();
        }
        text + &self.cast.output(piece.at, stream, &piece.bytes)
    }

    /// The end of a job that has ended.
    fn end(&mut self) -> String {
        let status = self.job.status();
        let Phase::Ended(outcome) = &status.phase else { return String::new() };
        let Some(at) = status.ended_at.map(timestamp_of) else { return String::new() };
        let rest = self.cast.rest(at);
        let exit = outcome.exit_status().map(|exit| self.cast.exit(at, exit));
        rest + &exit.unwrap_or_default()
    }
}

/// The rest of the lines.
struct LineExport {
    service: Service,
    id: String,
    format: ExportFormat,
    cursor: u64,
}

impl LineExport {
    async fn page(mut self) -> Result<(String, Option<Export>), Error> {
        let is_json = self.format == ExportFormat::Json;
        let page = self
            .service
            .tail(TailRequest {
                max_lines: Some(PAGE_LINES),
                max_bytes: Some(PAGE_BYTES),
                format: Format::Records,
                render: if is_json {
                    RenderArg::Raw
                } else {
                    RenderArg::Clean
                },
                ..TailRequest::new(self.id.clone(), self.cursor, 0)
            })
            .await?;
        let mut text = String::new();
        for record in page.records.iter().flatten() {
            if is_json {
                let fields = serde_json::to_value(record).expect("a record is plain data");
                text.push_str(&json_line(&fields));
            } else {
                let member = record.member.as_ref();
                let member = member.map_or_else(String::new, |member| format!("[{member}] "));
                text.push_str(&format!("{member}{}\n", record.text));
            }
        }
        self.cursor = page.last_line_no;
        let next = page.has_more.then_some(Export::Lines(self));
        Ok((text, next))
    }
}

async fn part(job: &ReadableJob, from: Option<RecordingPlace>) -> Result<StoredPieces, Error> {
    Ok(job.recording(from).await?.unwrap_or_default())
}

/// The first part of a job's output.
///
/// # Errors
/// If its output is not stored.
async fn first_part(job: &ReadableJob) -> Result<StoredPieces, Error> {
    job.recording(None).await?.ok_or_else(|| {
        Error::new(
            Code::Unsupported,
            format!(
                "the output of {} is not stored, so its times are not known",
                job.id()
            ),
            "use the format text or json, or start jobs with a state directory",
        )
    })
}
